package main

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"

	apps "k8s.io/api/apps/v1"
	authentication "k8s.io/api/authentication/v1"
	authorization "k8s.io/api/authorization/v1"
	autoscaling "k8s.io/api/autoscaling/v1"
	coordination "k8s.io/api/coordination/v1"
	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	events "k8s.io/api/events/v1"
	extensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/util/intstr"
)

var meanings = []struct {
	group  string
	object runtime.Object
}{
	{"", &core.ConfigMap{}}, {"", &core.Event{}}, {"", &core.Namespace{}}, {"", &core.Node{}}, {"", &core.PodTemplate{}},
	{"", &core.Pod{}}, {"", &core.Secret{}}, {"", &core.ServiceAccount{}}, {"", &core.Service{}}, {"", &core.ServiceList{}},
	{"apiextensions.k8s.io", &extensions.CustomResourceDefinition{}},
	{"apps", &apps.Deployment{}}, {"coordination.k8s.io", &coordination.Lease{}},
	{"discovery.k8s.io", &discovery.EndpointSlice{}}, {"events.k8s.io", &events.Event{}},
	{"authentication.k8s.io", &authentication.SelfSubjectReview{}}, {"authentication.k8s.io", &authentication.TokenReview{}},
	{"authorization.k8s.io", &authorization.SelfSubjectAccessReview{}},
	{"authorization.k8s.io", &authorization.SelfSubjectRulesReview{}},
	{"authorization.k8s.io", &authorization.SubjectAccessReview{}},
	{"authorization.k8s.io", &authorization.LocalSubjectAccessReview{}},
	{"autoscaling", &autoscaling.Scale{}}, {"", &meta.Status{}}, {"apps", &meta.DeleteOptions{}},
	{"meta.k8s.io", &meta.PartialObjectMetadata{}},
}

// Two lines per sample: what Go's encoder puts on the wire (base64), and what its JSON encoder writes for the same object. Each kind
// comes empty, with every pointer set to zero, and with every field filled.
func samples(out *bufio.Writer) {
	for _, meaning := range meanings {
		for _, fill := range []filler{{}, {pointers: true}, {pointers: true, values: true}} {
			held := reflect.TypeOf(meaning.object).Elem()
			object := reflect.New(held)
			fill.fill(object.Elem(), "", 0)
			kind := schema.GroupVersionKind{Group: meaning.group, Version: "v1", Kind: held.Name()}
			sample := object.Interface().(runtime.Object)
			sample.GetObjectKind().SetGroupVersionKind(kind)
			write(out, sample)
		}
	}
}

func write(out *bufio.Writer, sample runtime.Object) {
	var wire bytes.Buffer
	scheme := runtime.NewScheme()
	if err := protobuf.NewSerializer(scheme, scheme).Encode(sample, &wire); err != nil {
		panic(err)
	}
	text, err := json.Marshal(sample)
	if err != nil {
		panic(err)
	}
	fmt.Fprintf(out, "%s\n%s\n", base64.StdEncoding.EncodeToString(wire.Bytes()), text)
}

type filler struct{ pointers, values bool }

// Schemas hold schemas: deeper ones stay empty.
const deepest = 14

func (f filler) fill(value reflect.Value, name string, depth int) {
	if value.Type() == reflect.TypeFor[meta.TypeMeta]() {
		return
	}
	if f.special(value, name, depth) {
		return
	}
	switch value.Kind() {
	case reflect.Pointer:
		if f.pointers && depth < deepest && !(value.Type().Elem() == reflect.TypeFor[extensions.JSONSchemaProps]() && depth > 7) {
			value.Set(reflect.New(value.Type().Elem()))
			f.fill(value.Elem(), name, depth+1)
		}
	case reflect.Struct:
		for i := range value.NumField() {
			f.fill(value.Field(i), strings.Split(value.Type().Field(i).Tag.Get("json"), ",")[0], depth+1)
		}
	case reflect.Slice:
		f.slice(value, name, depth)
	case reflect.Map:
		if f.values && !f.stop(value, depth) {
			entry := reflect.New(value.Type().Elem()).Elem()
			f.fill(entry, name, depth+1)
			key := reflect.ValueOf("a.b/" + name).Convert(value.Type().Key())
			value.Set(reflect.MakeMap(value.Type()))
			value.SetMapIndex(key, entry)
		}
	default:
		if f.values {
			scalar(value, name)
		}
	}
}

func (f filler) stop(value reflect.Value, depth int) bool {
	return value.Type().Elem() == reflect.TypeFor[extensions.JSONSchemaProps]() && depth > 7
}

func (f filler) slice(value reflect.Value, name string, depth int) {
	if !f.values || f.stop(value, depth) {
		return
	}
	if value.Type().Elem().Kind() == reflect.Uint8 {
		value.SetBytes([]byte{0, 255, byte(len(name))})
		return
	}
	item := reflect.New(value.Type().Elem()).Elem()
	f.fill(item, name, depth+1)
	items := reflect.Append(reflect.MakeSlice(value.Type(), 0, 2), item)
	if value.Type().Elem().Kind() != reflect.Struct {
		items = reflect.Append(items, reflect.Zero(value.Type().Elem()))
	}
	value.Set(items)
}

// A value that differs from field to field, so that no two fields can be mistaken for each other.
func scalar(value reflect.Value, name string) {
	sum := int64(0)
	for _, letter := range name {
		sum = sum*31%1000003 + int64(letter)
	}
	switch value.Kind() {
	case reflect.Bool:
		value.SetBool(true)
	case reflect.String:
		value.SetString(name + "-ä")
	case reflect.Int32:
		value.SetInt(-sum)
	case reflect.Int64:
		value.SetInt(sum << 32)
	case reflect.Float64:
		value.SetFloat(float64(sum) + 0.5)
	default:
		panic("no value for " + value.String())
	}
}

func (f filler) special(value reflect.Value, name string, depth int) bool {
	moment := time.Date(2026, 2, 3, 4, 5, 6, 789012000, time.UTC)
	schemas := extensions.JSONSchemaProps{Type: name}
	var filled any
	switch value.Interface().(type) {
	case meta.Time:
		filled = meta.NewTime(moment)
	case meta.MicroTime:
		filled = meta.NewMicroTime(moment)
	case resource.Quantity:
		filled = resource.MustParse("1500m")
	case intstr.IntOrString:
		filled = intstr.FromString(name)
		if len(name)%2 == 0 {
			filled = intstr.FromInt32(int32(len(name)))
		}
	case meta.FieldsV1:
		filled = meta.FieldsV1{Raw: []byte(`{"f:a":{".":{}}}`)}
	case extensions.JSON:
		filled = extensions.JSON{Raw: []byte(`{"a":[1,null,"x"]}`)}
	case extensions.JSONSchemaPropsOrArray:
		filled = extensions.JSONSchemaPropsOrArray{JSONSchemas: []extensions.JSONSchemaProps{schemas, schemas}}
		if depth%2 == 0 {
			filled = extensions.JSONSchemaPropsOrArray{Schema: &schemas}
		}
	case extensions.JSONSchemaPropsOrBool:
		filled = extensions.JSONSchemaPropsOrBool{Allows: true}
		if len(name)%2 == 0 {
			filled = extensions.JSONSchemaPropsOrBool{Allows: true, Schema: &schemas}
		}
	case extensions.JSONSchemaPropsOrStringArray:
		filled = extensions.JSONSchemaPropsOrStringArray{Property: []string{"a", "b"}}
	default:
		return false
	}
	if f.values {
		value.Set(reflect.ValueOf(filled))
	}
	return true
}
