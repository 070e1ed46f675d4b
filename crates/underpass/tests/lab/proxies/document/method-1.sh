# Create NetworkAttachmentDefinition
kubectl apply -f - <<EOF
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata:
  name: tenant-vlan-100
  namespace: hosted-clusters
spec:
  config: |
    {
      "cniVersion": "0.3.1",
      "type": "macvlan",
      "master": "eth1",
      "mode": "bridge",
      "ipam": {
        "type": "static"
      }
    }
EOF

# Create ProxyServer
kubectl apply -f config/samples/hostedcluster_v1alpha1_proxyserver.yaml

# Verify deployment
kubectl get proxyservers -n hosted-clusters
kubectl get pods -n hosted-clusters -l app=proxy-server
