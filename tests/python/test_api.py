"""Python's Kubernetes client against a running `underpass up`, named by $KUBECONFIG. Run by crates/underpass/tests/it/clients.rs.

Each test has a namespace of its own. What is checked is what a program written for Kubernetes relies on: the client's own classes must be
able to read every answer, and the rules of the API (conflicts, versions, ownership, finalizers) must hold.
"""

import json
import threading
import time
import unittest
import uuid

from kubernetes import client, config, dynamic, informer, utils, watch
from kubernetes.client.rest import ApiException
from kubernetes.leaderelection import electionconfig, leaderelection
from kubernetes.leaderelection.resourcelock.configmaplock import ConfigMapLock
from kubernetes.leaderelection.resourcelock.leaselock import LeaseLock

PATIENCE = 20  # seconds until a condition that must come true counts as broken
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
GROUP, VERSION, GATEWAYS = "underpass.dev", "v1alpha1", "egressgateways"


def setUpModule():
    config.load_kube_config()


def config_map(name, data=None, **metadata):
    return client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name, **metadata), data=data or {})


def gateway(name, cidr="10.96.0.0/16"):
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "EgressGateway",
        "metadata": {"name": name},
        "spec": {"routedNamespaces": ["clients"], "directCIDRs": [cidr]},
    }


class ApiTest(unittest.TestCase):
    """A namespace that goes with the test, and words for what is expected."""

    def setUp(self):
        self.core = client.CoreV1Api()
        self.namespace = f"py-{uuid.uuid4().hex[:10]}"
        self.core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name=self.namespace)))
        self.addCleanup(self.core.delete_namespace, self.namespace)

    def refused(self, status, reason, call, *args, **kwargs):
        with self.assertRaises(ApiException) as caught:
            call(*args, **kwargs)
        body = json.loads(caught.exception.body)
        self.assertEqual((caught.exception.status, body["reason"]), (status, reason), body)
        return body

    def eventually(self, what, condition):
        deadline = time.monotonic() + PATIENCE
        while not condition():
            self.assertLess(time.monotonic(), deadline, f"waited {PATIENCE} s in vain: {what}")
            time.sleep(0.02)

    def create(self, name, data=None, **metadata):
        return self.core.create_namespaced_config_map(self.namespace, config_map(name, data, **metadata))

    def read(self, name):
        return self.core.read_namespaced_config_map(name, self.namespace)


class Objects(ApiTest):
    def test_the_server_says_who_it_is(self):
        self.assertRegex(client.VersionApi().get_code().git_version, r"^v1\.\d+\.\d+")
        groups = {group.name for group in client.ApisApi().get_api_versions().groups}
        self.assertLessEqual({"apps", "coordination.k8s.io", "apiextensions.k8s.io", GROUP}, groups)
        kinds = {resource.kind for resource in client.CoreV1Api().get_api_resources().resources}
        self.assertLessEqual({"ConfigMap", "Secret", "Service", "Namespace", "Event"}, kinds)

    def test_an_object_goes_through_its_life(self):
        made = self.create("life", {"a": "1"}, labels={"app": "x"})
        self.assertTrue(made.metadata.uid)
        self.assertEqual(made.metadata.namespace, self.namespace)
        self.refused(409, "AlreadyExists", self.create, "life")

        made.data["a"] = "2"
        changed = self.core.replace_namespaced_config_map("life", self.namespace, made)
        self.assertNotEqual(changed.metadata.resource_version, made.metadata.resource_version)
        made.data["a"] = "3"
        self.refused(409, "Conflict", self.core.replace_namespaced_config_map, "life", self.namespace, made)
        self.assertEqual(self.read("life").data, {"a": "2"})

        self.core.delete_namespaced_config_map("life", self.namespace)
        body = self.refused(404, "NotFound", self.read, "life")
        self.assertEqual(body["details"]["name"], "life")

    def test_an_object_too_large_is_refused_in_words(self):
        body = self.refused(413, "RequestEntityTooLarge", self.create, "huge", {"a": "x" * 3_500_000})
        self.assertIn("3145728", body["message"])

    def test_generated_names_differ(self):
        body = client.V1ConfigMap(metadata=client.V1ObjectMeta(generate_name="made-"))
        names = {self.core.create_namespaced_config_map(self.namespace, body).metadata.name for _ in range(5)}
        self.assertEqual(len(names), 5)
        self.assertTrue(all(name.startswith("made-") for name in names), names)

    def test_a_dry_run_changes_nothing(self):
        answer = self.core.create_namespaced_config_map(self.namespace, config_map("dry"), dry_run="All")
        self.assertEqual(answer.metadata.name, "dry")
        self.refused(404, "NotFound", self.read, "dry")

    def test_a_precondition_guards_a_delete(self):
        uid = self.create("guarded").metadata.uid
        wrong = client.V1DeleteOptions(preconditions=client.V1Preconditions(uid=str(uuid.uuid4())))
        self.refused(409, "Conflict", self.core.delete_namespaced_config_map, "guarded", self.namespace, body=wrong)
        right = client.V1DeleteOptions(preconditions=client.V1Preconditions(uid=uid))
        self.core.delete_namespaced_config_map("guarded", self.namespace, body=right)
        self.refused(404, "NotFound", self.read, "guarded")

    def test_secrets_services_and_deployments_are_kept_with_their_defaults(self):
        secret = client.V1Secret(metadata=client.V1ObjectMeta(name="s"), string_data={"key": "value"})
        self.assertEqual(self.core.create_namespaced_secret(self.namespace, secret).data, {"key": "dmFsdWU="})
        port = client.V1ServicePort(port=80)
        spec = client.V1ServiceSpec(selector={"app": "x"}, ports=[port])
        service = client.V1Service(metadata=client.V1ObjectMeta(name="s"), spec=spec)
        made = self.core.create_namespaced_service(self.namespace, service)
        self.assertEqual((made.spec.type, made.spec.ports[0].protocol), ("ClusterIP", "TCP"))
        container = client.V1Container(name="c", image="image:1")
        template = client.V1PodTemplateSpec(
            metadata=client.V1ObjectMeta(labels={"app": "x"}), spec=client.V1PodSpec(containers=[container])
        )
        spec = client.V1DeploymentSpec(selector=client.V1LabelSelector(match_labels={"app": "x"}), template=template)
        deployment = client.V1Deployment(metadata=client.V1ObjectMeta(name="d"), spec=spec)
        made = client.AppsV1Api().create_namespaced_deployment(self.namespace, deployment)
        self.assertEqual((made.spec.replicas, made.spec.strategy.type), (1, "RollingUpdate"))

    def test_an_immutable_config_map_stays_as_it_is(self):
        body = config_map("fixed", {"a": "1"})
        body.immutable = True
        made = self.core.create_namespaced_config_map(self.namespace, body)
        made.data = {"a": "2"}
        self.refused(422, "Invalid", self.core.replace_namespaced_config_map, "fixed", self.namespace, made)

    def test_a_finalizer_holds_what_is_deleted(self):
        self.create("held", finalizers=["example.com/hold"])
        self.core.delete_namespaced_config_map("held", self.namespace)
        self.assertIsNotNone(self.read("held").metadata.deletion_timestamp)
        self.core.patch_namespaced_config_map(
            "held", self.namespace, {"metadata": {"finalizers": None}}, _content_type=MERGE_PATCH
        )
        self.refused(404, "NotFound", self.read, "held")

    def test_dependents_go_with_their_owner(self):
        owner = self.create("owner")
        reference = client.V1OwnerReference(
            api_version="v1", kind="ConfigMap", name="owner", uid=owner.metadata.uid, block_owner_deletion=True
        )
        self.create("dependent", owner_references=[reference])
        self.core.delete_namespaced_config_map("owner", self.namespace, propagation_policy="Foreground")
        names = lambda: [item.metadata.name for item in self.core.list_namespaced_config_map(self.namespace).items]
        self.eventually("owner and dependent are gone", lambda: not {"owner", "dependent"} & set(names()))

    def test_a_namespace_has_its_account_and_takes_its_content_along(self):
        self.eventually(
            "the default ServiceAccount is there",
            lambda: "default"
            in [item.metadata.name for item in self.core.list_namespaced_service_account(self.namespace).items],
        )
        name = f"{self.namespace}-gone"
        self.core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name=name)))
        self.core.create_namespaced_config_map(name, config_map("inside"))
        self.core.delete_namespace(name)
        names = lambda: [item.metadata.name for item in self.core.list_namespace().items]
        self.eventually("the namespace is gone", lambda: name not in names())


class Lists(ApiTest):
    def test_pages_together_are_the_list(self):
        for number in range(7):
            self.create(f"item-{number}", labels={"kind": "item"})
        found, token = [], None
        while True:
            page = self.core.list_namespaced_config_map(
                self.namespace, label_selector="kind=item", limit=3, _continue=token
            )
            found += [item.metadata.name for item in page.items]
            token = page.metadata._continue
            if not token:
                break
        self.assertEqual(found, [f"item-{number}" for number in range(7)])

    def test_selectors_choose(self):
        for name, labels in {"a": {"t": "1"}, "b": {"t": "2"}, "c": {"u": "1"}}.items():
            self.create(name, labels=labels)

        def chosen(**selector):
            items = self.core.list_namespaced_config_map(self.namespace, **selector).items
            return [item.metadata.name for item in items if item.metadata.name in "abc"]

        self.assertEqual(chosen(label_selector="t in (1,2)"), ["a", "b"])
        self.assertEqual(chosen(label_selector="t,t!=1"), ["b"])
        self.assertEqual(chosen(label_selector="!t"), ["c"])
        self.assertEqual(chosen(field_selector="metadata.name=b"), ["b"])
        self.refused(400, "BadRequest", chosen, field_selector="data.a=1")

    def test_a_collection_is_deleted_by_selector(self):
        self.create("keep")
        for name in ("drop-1", "drop-2"):
            self.create(name, labels={"drop": "yes"})
        self.core.delete_collection_namespaced_config_map(self.namespace, label_selector="drop=yes")
        names = [item.metadata.name for item in self.core.list_namespaced_config_map(self.namespace).items]
        self.assertIn("keep", names)
        self.assertFalse([name for name in names if name.startswith("drop")])


class Watches(ApiTest):
    def watched(self, count, **kwargs):
        """The first `count` events, as (type, name, value)."""
        watcher, events = watch.Watch(), []
        stream = watcher.stream(self.core.list_namespaced_config_map, self.namespace, timeout_seconds=PATIENCE, **kwargs)
        for event in stream:
            item = event["object"]
            events.append((event["type"], item.metadata.name, (item.data or {}).get("v")))
            if len(events) == count:
                watcher.stop()
        return events, watcher.resource_version

    def write(self, name, value):
        body = {"data": {"v": value}}
        return self.core.patch_namespaced_config_map(name, self.namespace, body, _content_type=MERGE_PATCH)

    def version(self):
        return self.core.list_namespaced_config_map(self.namespace).metadata.resource_version

    def settled(self):
        names = lambda: [item.metadata.name for item in self.core.list_namespaced_config_map(self.namespace).items]
        self.eventually("kube-root-ca.crt is there", lambda: "kube-root-ca.crt" in names())

    def test_every_change_is_seen_in_order(self):
        self.settled()
        start = self.version()
        self.create("a", {"v": "1"})
        self.write("a", "2")
        self.core.delete_namespaced_config_map("a", self.namespace)
        events, _ = self.watched(3, resource_version=start)
        self.assertEqual(events, [("ADDED", "a", "1"), ("MODIFIED", "a", "2"), ("DELETED", "a", "2")])

    def test_a_watch_goes_on_where_it_was_left(self):
        self.settled()
        start = self.version()
        self.create("a", {"v": "0"})
        for value in range(1, 10):
            self.write("a", str(value))
        first, left = self.watched(4, resource_version=start)
        second, _ = self.watched(6, resource_version=left)
        self.assertEqual([value for _, _, value in first + second], [str(value) for value in range(10)])

    def test_a_selector_turns_changes_into_coming_and_going(self):
        self.settled()
        start = self.version()
        self.create("a")
        for labels in ({"on": "1"}, {"on": "1", "x": "y"}, {"on": None}):
            patch = {"metadata": {"labels": labels}}
            self.core.patch_namespaced_config_map("a", self.namespace, patch, _content_type=MERGE_PATCH)
        events, _ = self.watched(3, resource_version=start, label_selector="on=1")
        self.assertEqual([kind for kind, _, _ in events], ["ADDED", "MODIFIED", "DELETED"])

    def test_a_stream_can_begin_with_the_state(self):
        self.settled()
        self.create("a")
        watcher, seen = watch.Watch(), []
        stream = watcher.stream(
            self.core.list_namespaced_config_map,
            self.namespace,
            send_initial_events=True,
            resource_version_match="NotOlderThan",
            allow_watch_bookmarks=True,
            timeout_seconds=PATIENCE,
        )
        for event in stream:
            seen.append((event["type"], event["raw_object"]["metadata"].get("name")))
            if event["type"] == "BOOKMARK":
                annotations = event["raw_object"]["metadata"]["annotations"]
                self.assertEqual(annotations, {"k8s.io/initial-events-end": "true"})
                watcher.stop()
        self.assertEqual(seen, [("ADDED", "a"), ("ADDED", "kube-root-ca.crt"), ("BOOKMARK", None)])

    def test_a_watch_ends_when_it_was_told_to(self):
        stream = watch.Watch().stream(self.core.list_namespaced_config_map, self.namespace, timeout_seconds=1)
        self.assertGreaterEqual(len(list(stream)), 0)

    def test_a_version_of_the_future_is_refused(self):
        future = str(int(self.version()) + 1_000_000)
        with self.assertRaises(ApiException) as caught:
            self.core.list_namespaced_config_map(
                self.namespace, resource_version=future, resource_version_match="NotOlderThan"
            )
        self.assertEqual(caught.exception.status, 504)

    def test_an_informer_mirrors_the_namespace(self):
        self.settled()
        mirror = informer.SharedInformer(self.core.list_namespaced_config_map, namespace=self.namespace)
        deleted = threading.Event()
        mirror.add_event_handler(informer.DELETED, lambda _: deleted.set())
        mirror.start()
        self.addCleanup(mirror.stop)
        self.create("a", {"v": "1"})
        names = lambda: {item.metadata.name for item in mirror.cache.list()}
        self.eventually("the object is mirrored", lambda: "a" in names())
        self.core.delete_namespaced_config_map("a", self.namespace)
        self.assertTrue(deleted.wait(PATIENCE))
        self.assertNotIn("a", names())


class Patches(ApiTest):
    def patch(self, body, content_type, **kwargs):
        return self.core.patch_namespaced_config_map("p", self.namespace, body, _content_type=content_type, **kwargs)

    def test_a_json_patch_is_a_list_of_steps(self):
        self.create("p", {"a": "1"})
        steps = [
            {"op": "test", "path": "/data/a", "value": "1"},
            {"op": "replace", "path": "/data/a", "value": "2"},
            {"op": "add", "path": "/data/b", "value": "3"},
        ]
        self.assertEqual(self.patch(steps, JSON_PATCH).data, {"a": "2", "b": "3"})
        self.refused(422, "Invalid", self.patch, steps, JSON_PATCH)

    def test_a_merge_patch_removes_with_null(self):
        self.create("p", {"a": "1", "b": "2"})
        self.assertEqual(self.patch({"data": {"a": None, "c": "3"}}, MERGE_PATCH).data, {"b": "2", "c": "3"})

    def test_a_strategic_patch_knows_the_keys_of_lists(self):
        ports = [client.V1ServicePort(name="a", port=1), client.V1ServicePort(name="b", port=2)]
        service = client.V1Service(metadata=client.V1ObjectMeta(name="p"), spec=client.V1ServiceSpec(ports=ports))
        self.core.create_namespaced_service(self.namespace, service)
        patch = {"spec": {"ports": [{"port": 2, "name": "changed"}, {"port": 1, "$patch": "delete"}]}}
        made = self.core.patch_namespaced_service("p", self.namespace, patch, _content_type=STRATEGIC_PATCH)
        self.assertEqual([(port.name, port.port) for port in made.spec.ports], [("changed", 2)])

    def test_a_stale_patch_conflicts(self):
        stale = self.create("p", {"a": "1"}).metadata.resource_version
        self.patch({"data": {"a": "2"}}, MERGE_PATCH)
        body = {"metadata": {"resourceVersion": stale}, "data": {"a": "3"}}
        self.refused(409, "Conflict", self.patch, body, MERGE_PATCH)

    def test_applies_share_an_object_and_conflict_over_a_field(self):
        def apply(manager, data, **kwargs):
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "p"}, "data": data}
            return self.patch(body, APPLY_PATCH, field_manager=manager, **kwargs)

        apply("one", {"a": "1", "b": "1"})
        self.assertEqual(apply("two", {"c": "2"}).data, {"a": "1", "b": "1", "c": "2"})
        body = self.refused(409, "Conflict", apply, "two", {"c": "2", "a": "2"})
        self.assertEqual([cause["field"] for cause in body["details"]["causes"]], [".data.a"])
        forced = apply("two", {"c": "2", "a": "2"}, force=True)
        self.assertEqual(forced.data, {"a": "2", "b": "1", "c": "2"})
        self.assertEqual(apply("two", {"a": "2"}).data, {"a": "2", "b": "1"})
        managers = {(entry.manager, entry.operation) for entry in self.read("p").metadata.managed_fields}
        self.assertEqual(managers, {("one", "Apply"), ("two", "Apply")})

    def test_unknown_fields_are_refused_when_asked(self):
        self.create("p")
        answer = self.refused(422, "Invalid", self.patch, {"dat": {}}, MERGE_PATCH, field_validation="Strict")
        self.assertIn('unknown field "dat"', answer["message"])


class CustomObjects(ApiTest):
    def setUp(self):
        super().setUp()
        self.custom = client.CustomObjectsApi()
        self.place = (GROUP, VERSION, self.namespace, GATEWAYS)

    def test_our_kinds_are_validated_by_their_schema(self):
        wrong = gateway("g")
        wrong["spec"]["directCIDRs"] = "everywhere"
        body = self.refused(422, "Invalid", self.custom.create_namespaced_custom_object, *self.place, wrong)
        self.assertEqual(body["details"]["causes"][0]["field"], "spec.directCIDRs")

    def test_custom_objects_live_like_any_other(self):
        made = self.custom.create_namespaced_custom_object(*self.place, gateway("g"))
        self.assertEqual(made["metadata"]["generation"], 1)
        listed = self.custom.list_namespaced_custom_object(*self.place)
        self.assertEqual([item["metadata"]["name"] for item in listed["items"]], ["g"])
        patch = {"spec": {"directCIDRs": ["10.0.0.0/8"]}}
        changed = self.custom.patch_namespaced_custom_object(*self.place, "g", patch, _content_type=MERGE_PATCH)
        self.assertEqual(changed["spec"]["directCIDRs"], ["10.0.0.0/8"])
        self.assertEqual(changed["metadata"]["generation"], 2)
        self.custom.delete_namespaced_custom_object(*self.place, "g")
        listed = lambda: self.custom.list_namespaced_custom_object(*self.place)["items"]
        self.eventually("the gateway is gone", lambda: not listed())

    def test_a_kind_can_be_defined_used_and_taken_away(self):
        plural, group = f"widgets{uuid.uuid4().hex[:6]}", "python.example.com"
        schema = {
            "type": "object",
            "properties": {
                "spec": {
                    "type": "object",
                    "properties": {"size": {"type": "integer", "minimum": 1, "default": 3}},
                    "x-kubernetes-validations": [{"rule": "self.size < 100", "message": "too big"}],
                },
                "status": {"type": "object", "properties": {"seen": {"type": "boolean"}}},
            },
        }
        definition = client.V1CustomResourceDefinition(
            metadata=client.V1ObjectMeta(name=f"{plural}.{group}"),
            spec=client.V1CustomResourceDefinitionSpec(
                group=group,
                scope="Namespaced",
                names=client.V1CustomResourceDefinitionNames(plural=plural, kind="Widget"),
                versions=[
                    client.V1CustomResourceDefinitionVersion(
                        name="v1",
                        served=True,
                        storage=True,
                        schema=client.V1CustomResourceValidation.from_dict({"openAPIV3Schema": schema}),
                        subresources=client.V1CustomResourceSubresources.from_dict({"status": {}}),
                    )
                ],
            ),
        )
        definitions = client.ApiextensionsV1Api()
        definitions.create_custom_resource_definition(definition)
        self.addCleanup(self.forget, definitions, definition.metadata.name)
        self.eventually("the kind is established", lambda: self.established(definitions, definition.metadata.name))

        place = (group, "v1", self.namespace, plural)
        widget = {"apiVersion": f"{group}/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {}}
        made = self.custom.create_namespaced_custom_object(*place, {**widget, "status": {"seen": True}})
        self.assertEqual(made["spec"], {"size": 3})
        self.assertNotIn("status", made, "the status is written through its subresource only")
        patch = {"spec": {"size": 50}, "status": {"seen": True}}
        seen = self.custom.patch_namespaced_custom_object_status(*place, "w", patch, _content_type=MERGE_PATCH)
        self.assertEqual((seen["spec"], seen["status"]), ({"size": 3}, {"seen": True}))
        patch = {"spec": {"size": 100}}
        call = self.custom.patch_namespaced_custom_object
        body = self.refused(422, "Invalid", call, *place, "w", patch, _content_type=MERGE_PATCH)
        self.assertIn("too big", body["message"])

        definitions.delete_custom_resource_definition(definition.metadata.name)

        def gone():
            try:
                self.custom.list_namespaced_custom_object(*place)
                return False
            except ApiException as error:
                return error.status == 404

        self.eventually("the kind is gone", gone)

    @staticmethod
    def established(definitions, name):
        conditions = definitions.read_custom_resource_definition(name).status.conditions or []
        return any(condition.type == "Established" and condition.status == "True" for condition in conditions)

    @staticmethod
    def forget(definitions, name):
        try:
            definitions.delete_custom_resource_definition(name)
        except ApiException as error:
            if error.status != 404:
                raise


class Dynamic(ApiTest):
    def setUp(self):
        super().setUp()
        self.dynamic = dynamic.DynamicClient(client.ApiClient())
        self.gateways = self.dynamic.resources.get(api_version=f"{GROUP}/{VERSION}", kind="EgressGateway")

    def test_kinds_are_found_by_discovery(self):
        self.assertTrue(self.gateways.namespaced)
        network = self.dynamic.resources.get(api_version=f"{GROUP}/{VERSION}", kind="ContainerNetwork")
        self.assertFalse(network.namespaced)
        self.assertIn("ctrnet", network.short_names)
        self.assertEqual(self.dynamic.resources.get(api_version="v1", kind="ConfigMap").name, "configmaps")

    def test_objects_are_made_changed_and_deleted(self):
        made = self.gateways.create(body=gateway("g"), namespace=self.namespace)
        self.assertEqual(made.spec.directCIDRs, ["10.96.0.0/16"])
        body = gateway("g", "10.0.0.0/8")
        body["metadata"]["namespace"] = self.namespace
        applied = self.gateways.server_side_apply(body=body, field_manager="dynamic", force_conflicts=True)
        self.assertEqual(applied.spec.directCIDRs, ["10.96.0.0/16", "10.0.0.0/8"], "a set is shared by its owners")
        changed = self.gateways.patch(
            name="g",
            namespace=self.namespace,
            body={"metadata": {"labels": {"a": "b"}}},
            content_type=MERGE_PATCH,
        )
        self.assertEqual(changed.metadata.labels.a, "b")
        chosen = self.gateways.get(namespace=self.namespace, label_selector="a=b")
        self.assertEqual([item.metadata.name for item in chosen.items], ["g"])
        self.gateways.delete(name="g", namespace=self.namespace)
        self.eventually("it is gone", lambda: not self.gateways.get(namespace=self.namespace).items)

    def test_changes_are_watched(self):
        start = self.gateways.get(namespace=self.namespace).metadata.resourceVersion
        self.gateways.create(body=gateway("g"), namespace=self.namespace)
        watcher = watch.Watch()
        stream = self.gateways.watch(
            namespace=self.namespace, resource_version=start, timeout=PATIENCE, watcher=watcher
        )
        event = next(stream)
        watcher.stop()
        self.assertEqual((event["type"], event["object"].metadata.name), ("ADDED", "g"))


class FromYaml(ApiTest):
    DOCUMENTS = [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "1"}},
        {
            "apiVersion": "v1",
            "kind": "List",
            "items": [
                {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"a": "1"}},
                {
                    "apiVersion": "coordination.k8s.io/v1",
                    "kind": "Lease",
                    "metadata": {"name": "l"},
                    "spec": {"holderIdentity": "me"},
                },
            ],
        },
    ]

    def test_documents_are_created(self):
        utils.create_from_yaml(client.ApiClient(), yaml_objects=self.DOCUMENTS, namespace=self.namespace)
        self.assertEqual(self.read("c").data, {"a": "1"})
        lease = client.CoordinationV1Api().read_namespaced_lease("l", self.namespace)
        self.assertEqual(lease.spec.holder_identity, "me")
        with self.assertRaises(utils.FailToCreateError) as caught:
            utils.create_from_yaml(client.ApiClient(), yaml_objects=self.DOCUMENTS[:1], namespace=self.namespace)
        self.assertEqual([error.status for error in caught.exception.api_exceptions], [409])

    def test_documents_are_applied_twice(self):
        for value in ("1", "2"):
            body = [{**self.DOCUMENTS[0], "data": {"a": value}}, gateway("g")]
            utils.create_from_yaml(client.ApiClient(), yaml_objects=body, namespace=self.namespace, apply=True)
            self.assertEqual(self.read("c").data, {"a": value})


class Elections(ApiTest):
    """The election module never ends by itself: candidates run in daemon threads, and are ended by the lock being taken away."""

    def elect(self, lock):
        leading = threading.Event()
        election = electionconfig.Config(
            lock, lease_duration=3, renew_deadline=2, retry_period=1, onstarted_leading=leading.set, onstopped_leading=None
        )
        threading.Thread(target=leaderelection.LeaderElection(election).run, daemon=True).start()
        return leading

    def exactly_one_leads(self, lock):
        first = self.elect(lock("election", self.namespace, "first"))
        self.assertTrue(first.wait(PATIENCE))
        second = self.elect(lock("election", self.namespace, "second"))
        return second

    def test_a_lease_has_one_holder_who_renews_it(self):
        second = self.exactly_one_leads(LeaseLock)
        leases = client.CoordinationV1Api()
        read = lambda: leases.read_namespaced_lease("election", self.namespace).spec
        taken = read()
        self.assertEqual(taken.holder_identity, "first")
        self.eventually("the lease is renewed twice", lambda: (read().renew_time - taken.renew_time).total_seconds() > 2)
        self.assertEqual(read().holder_identity, "first")
        self.assertEqual(read().acquire_time, taken.acquire_time)
        self.assertFalse(second.is_set())

    def test_a_config_map_can_be_the_lock(self):
        second = self.exactly_one_leads(ConfigMapLock)
        annotation = self.read("election").metadata.annotations["control-plane.alpha.kubernetes.io/leader"]
        self.assertEqual(json.loads(annotation)["holderIdentity"], "first")
        self.assertFalse(second.is_set())


if __name__ == "__main__":
    unittest.main()
