// The metrics server, as the lab runs it: it knows itself and the kubelets by what every pod is given. The main package of its own sets a
// field that Kubernetes' libraries have not any more; all else of it is used as it is, with the libraries that are compiled for Kubernetes.
package main

import (
	"fmt"
	"net"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/util/compatibility"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/metrics-server/pkg/api"
	"sigs.k8s.io/metrics-server/pkg/api/generated/openapi"
	"sigs.k8s.io/metrics-server/pkg/scraper/client"
	"sigs.k8s.io/metrics-server/pkg/server"
)

const (
	ownPort     = 10250
	kubeletPort = 10250
	// How often kubelets are looked at; the least that the original allows.
	resolution = 10 * time.Second
)

func main() {
	if err := run(genericapiserver.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(stop <-chan struct{}) error {
	cluster, err := rest.InClusterConfig()
	if err != nil {
		return err
	}
	own, err := ownConfig()
	if err != nil {
		return err
	}
	config := server.Config{
		Apiserver: own,
		Rest:      cluster,
		Kubelet: &client.KubeletClientConfig{
			Client:              *rest.CopyConfig(cluster),
			AddressTypePriority: []corev1.NodeAddressType{corev1.NodeInternalIP},
			Scheme:              "https",
			DefaultPort:         kubeletPort,
		},
		MetricResolution: resolution,
		ScrapeTimeout:    resolution * 8 / 10,
	}
	metrics, err := config.Complete()
	if err != nil {
		return err
	}
	return metrics.RunUntil(stop)
}

// Who asks, and what they may, is known by kube-apiserver.
func ownConfig() (*genericapiserver.Config, error) {
	serving := genericoptions.NewSecureServingOptions()
	serving.BindPort = ownPort
	serving.ServerCert.CertDirectory = "/tmp"
	if err := serving.MaybeDefaultWithSelfSignedCerts("localhost", nil, []net.IP{net.IPv4(127, 0, 0, 1)}); err != nil {
		return nil, err
	}
	config := genericapiserver.NewConfig(api.Codecs)
	if err := serving.WithLoopback().ApplyTo(&config.SecureServing, &config.LoopbackClientConfig); err != nil {
		return nil, err
	}
	if err := genericoptions.NewDelegatingAuthenticationOptions().ApplyTo(&config.Authentication, config.SecureServing, nil); err != nil {
		return nil, err
	}
	if err := genericoptions.NewDelegatingAuthorizationOptions().ApplyTo(&config.Authorization); err != nil {
		return nil, err
	}
	config.EffectiveVersion = compatibility.DefaultBuildEffectiveVersion()
	names := openapinamer.NewDefinitionNamer(api.Scheme)
	config.OpenAPIConfig = genericapiserver.DefaultOpenAPIConfig(openapi.GetOpenAPIDefinitions, names)
	config.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(openapi.GetOpenAPIDefinitions, names)
	return config, nil
}
