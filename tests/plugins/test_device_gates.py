"""DRAExtendedResource and DRAPrioritizedList, which can be turned off."""

from flotilla.events import Action, Resource
from flotilla.results import SUCCESS, unresolvable
from shared.config.args import NodeResourcesFitArgs
from shared.config.feature_gates import DEFAULT_GATES, FeatureGates
from shared.framework.evaluator import Explanation
from shared.framework.loading import load_frameworks
from shared.model.kinds import ObjectKind
from shared.model.objects import ClusterObject
from shared.plugins.dynamicresources import DynamicResources
from shared.plugins.noderesources import NodeResourcesFit
from testing.builders import PodBuilder, class_state, node, pod
from tests.devices.builders import claim, device, exactly, first_of, slice_of
from tests.plugins.cluster import framework, judge, table_of
from tests.plugins.hints.asking import helps, listens, obj

GPU = "example.com/gpu"
NO_RESOURCES = FeatureGates.parse("DRAExtendedResource=false")
NO_ALTERNATIVES = FeatureGates.parse("DRAPrioritizedList=false")


def device_class() -> ClusterObject:
    """Whose devices serve as GPU."""
    selectors = [{"cel": {"expression": "true"}}]
    return obj(ObjectKind.DEVICE_CLASS, "any", spec={"extendedResourceName": GPU, "selectors": selectors})


def explained(arriving: PodBuilder, gates: FeatureGates, *objects: ClusterObject) -> Explanation:
    """On node n, which has a device but no resource of that name."""
    table = table_of(node("n"))
    for each in (device_class(), slice_of([device("gpu-0")]), *objects):
        table.objects.upsert(each)
    return judge(load_frameworks(None, gates)["default-scheduler"], arriving, table)


def test_devices_serve_as_extended_resources_with_their_gate_only() -> None:
    arriving = pod("p").request({GPU: 1})
    assert explained(arriving, DEFAULT_GATES).rejected == {}
    short = {"n": unresolvable(f"Insufficient {GPU}").by("NodeResourcesFit")}
    assert explained(arriving, NO_RESOURCES).rejected == short


def test_the_balance_of_a_node_counts_the_devices_that_provide_a_resource() -> None:
    resources = [{"name": name, "weight": 1} for name in ("cpu", GPU)]
    args: dict[str, object] = {"NodeResourcesBalancedAllocation": {"resources": resources}}
    profile = framework("NodeResourcesBalancedAllocation", args=args)
    table = table_of(node("n").capacity(cpu=4))
    arriving = pod("p").request({"cpu": 1, GPU: 1})
    for each in (device_class(), slice_of([device("gpu-0")])):
        assert judge(profile, arriving, table).scores == {"n": {"NodeResourcesBalancedAllocation": 75}}
        table.objects.upsert(each)
    assert judge(profile, arriving, table).scores == {"n": {"NodeResourcesBalancedAllocation": 56}}


def test_a_node_that_has_the_resource_itself_is_used_without_the_gate() -> None:
    table = table_of(node("n").capacity({GPU: 1}))
    table.objects.upsert(device_class())
    profile = load_frameworks(None, NO_RESOURCES)["default-scheduler"]
    assert judge(profile, pod("p").request({GPU: 1}), table).rejected == {}


def test_no_class_helps_a_pod_that_lacks_a_resource_without_the_gate() -> None:
    plugins = [NodeResourcesFit(NodeResourcesFitArgs(), gates) for gates in (DEFAULT_GATES, NO_RESOURCES)]
    assert [listens(plugin, Resource.DEVICE_CLASS, Action.ADD) for plugin in plugins] == [True, False]
    objects = table_of().objects
    objects.upsert(device_class())
    new, waiting = (Resource.NODE, Action.ADD), pod("p").request({GPU: 1})
    helped = [helps(plugin, new, waiting, None, node("m"), objects) for plugin in plugins]
    assert helped == [True, False]


def test_claims_of_devices_need_no_gate() -> None:
    arriving = pod("p").resource_claim("gpu", "c")
    assert explained(arriving, NO_RESOURCES, claim(exactly("r"))).rejected == {}


def test_a_request_with_subrequests_needs_its_gate() -> None:
    arriving = pod("p").resource_claim("gpu", "c")
    table = table_of(node("n"))
    for each in (device_class(), slice_of([device("gpu-0")]), claim(exactly("one"), first_of("r", {"count": 1}))):
        table.objects.upsert(each)
    why = "resource claim {claim 0}, request r: has subrequests, but the DRAPrioritizedList feature is disabled"
    for gates, expected in ((DEFAULT_GATES, SUCCESS), (NO_ALTERNATIVES, unresolvable(why))):
        plugin = DynamicResources(None, gates)
        assert plugin.pre_filter(class_state(arriving.build(), table.objects)).status == expected
