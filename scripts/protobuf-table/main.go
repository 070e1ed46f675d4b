// Command protobuf-table writes down how Kubernetes puts its kinds on the wire: for each message reachable from the kinds that the
// embedded API server knows, the numbers, names and types of its fields. The facts are read from the Go types themselves, because the
// .proto files do not say what JSON calls a field, nor whether a zero is kept (pointers) or dropped (omitempty).
//
//	cd scripts/protobuf-table
//	go run . table > ../../crates/underpass-builtins/src/protobuf/messages.txt
//	go run . samples > ../../crates/underpass-builtins/tests/protobuf/samples.txt
package main

import (
	"bufio"
	"fmt"
	"os"
	"reflect"
	"sort"
	"strings"

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
	"k8s.io/apimachinery/pkg/util/intstr"
)

var roots = []any{
	core.ConfigMapList{}, core.EventList{}, core.NamespaceList{}, core.NodeList{}, core.PodTemplateList{}, core.PodList{},
	core.SecretList{}, core.ServiceAccountList{}, core.ServiceList{}, extensions.CustomResourceDefinitionList{},
	apps.DeploymentList{}, coordination.LeaseList{}, discovery.EndpointSliceList{}, events.EventList{},
	authentication.SelfSubjectReview{}, authentication.TokenReview{},
	authorization.SelfSubjectAccessReview{}, authorization.SelfSubjectRulesReview{},
	authorization.SubjectAccessReview{}, authorization.LocalSubjectAccessReview{},
	autoscaling.Scale{}, meta.Status{}, meta.DeleteOptions{}, meta.PartialObjectMetadataList{},
}

// Types whose JSON is not that of their fields.
var special = map[reflect.Type]string{
	reflect.TypeFor[meta.Time]():                               "time",
	reflect.TypeFor[meta.MicroTime]():                          "microtime",
	reflect.TypeFor[resource.Quantity]():                       "quantity",
	reflect.TypeFor[intstr.IntOrString]():                      "int-or-string",
	reflect.TypeFor[meta.FieldsV1]():                           "json",
	reflect.TypeFor[runtime.RawExtension]():                    "json",
	reflect.TypeFor[extensions.JSON]():                         "json",
	reflect.TypeFor[authentication.ExtraValue]():               "strings",
	reflect.TypeFor[authorization.ExtraValue]():                "strings",
	reflect.TypeFor[extensions.JSONSchemaPropsOrArray]():       "schema-or-array",
	reflect.TypeFor[extensions.JSONSchemaPropsOrBool]():        "schema-or-bool",
	reflect.TypeFor[extensions.JSONSchemaPropsOrStringArray](): "schema-or-strings",
}

var scalars = map[reflect.Kind]string{
	reflect.Bool: "bool", reflect.Int32: "int32", reflect.Int64: "int64", reflect.Float64: "double", reflect.String: "string",
}

func main() {
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	switch {
	case len(os.Args) == 2 && os.Args[1] == "table":
		table(out)
	case len(os.Args) == 2 && os.Args[1] == "samples":
		samples(out)
	default:
		fmt.Fprintln(os.Stderr, "usage: protobuf-table table|samples")
		os.Exit(2)
	}
}

func table(out *bufio.Writer) {
	messages := map[string][]string{}
	for _, root := range roots {
		describe(reflect.TypeOf(root), messages)
	}
	names := make([]string, 0, len(messages))
	for name := range messages {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		fmt.Fprintln(out, name)
		for _, field := range messages[name] {
			fmt.Fprintln(out, " "+field)
		}
	}
}

func describe(message reflect.Type, messages map[string][]string) {
	name := definition(message)
	if _, known := messages[name]; known {
		return
	}
	messages[name] = []string{}
	for i := range message.NumField() {
		field := message.Field(i)
		wire := strings.Split(field.Tag.Get("protobuf"), ",")
		if field.Type == reflect.TypeFor[meta.TypeMeta]() || wire[0] == "-" {
			continue // named by the envelope
		}
		if len(wire) < 2 {
			panic(name + "." + field.Name + " has no number")
		}
		json := strings.Split(field.Tag.Get("json"), ",")
		if json[0] == "" {
			json[0] = "-"
		}
		shape, held := shape(field.Type, json[1:])
		messages[name] = append(messages[name], strings.Join([]string{wire[1], json[0], shape, typeName(held)}, " "))
		if held.Kind() == reflect.Struct {
			if _, leaf := special[held]; !leaf {
				describe(held, messages)
			}
			if strings.HasPrefix(special[held], "schema-") {
				describe(reflect.TypeFor[extensions.JSONSchemaProps](), messages)
			}
		}
	}
}

// How a field is there or not: "set" (as sent), "plain" (always), "nonzero" (unless zero), "list", "map", "inline".
func shape(held reflect.Type, options []string) (string, reflect.Type) {
	has := func(option string) bool {
		for _, o := range options {
			if o == option {
				return true
			}
		}
		return false
	}
	_, leaf := special[held]
	switch {
	case has("inline"):
		return "inline", held
	case held.Kind() == reflect.Pointer:
		return "set", held.Elem()
	case held.Kind() == reflect.Slice && held.Elem().Kind() == reflect.Uint8 && has("omitempty"):
		return "nonzero", held
	case held.Kind() == reflect.Slice && held.Elem().Kind() == reflect.Uint8:
		return "set", held
	case leaf && has("omitzero"):
		return "nonzero", held
	case leaf:
		return "plain", held
	case held.Kind() == reflect.Slice:
		return "list", held.Elem()
	case held.Kind() == reflect.Map:
		return "map", held.Elem()
	case has("omitzero"), has("omitempty") && held.Kind() != reflect.Struct:
		return "nonzero", held
	default:
		return "plain", held
	}
}

func typeName(held reflect.Type) string {
	if name, leaf := special[held]; leaf {
		return name
	}
	if name, scalar := scalars[held.Kind()]; scalar {
		return name
	}
	if held.Kind() == reflect.Slice && held.Elem().Kind() == reflect.Uint8 {
		return "bytes"
	}
	return definition(held)
}

// The name that OpenAPI has for a type.
func definition(held reflect.Type) string {
	if held.Kind() != reflect.Struct {
		panic("no message: " + held.String())
	}
	path := strings.TrimPrefix(held.PkgPath(), "k8s.io/")
	return "io.k8s." + strings.ReplaceAll(path, "/", ".") + "." + held.Name()
}
