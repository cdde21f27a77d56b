"""Feature gates: kube-scheduler v1.36's names, stages and defaults, and what setting one does in Flotilla.

kube-scheduler takes them by its flag `--feature-gates`, not in its configuration file; so do Flotilla's services, as a
setting. A gate has an effect here, or is refused because Flotilla has its behaviour only one way, or concerns other
components of Kubernetes, and is ignored with a note.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from types import MappingProxyType
from typing import Final, NamedTuple

from shared.config.spelling import did_you_mean


class Stage(StrEnum):
    ALPHA = "alpha"
    BETA = "beta"
    GA = "GA"
    DEPRECATED = "deprecated"


class Gate(NamedTuple):
    """`locked`: it cannot be changed."""

    stage: Stage
    default: bool
    locked: bool


class Feature(StrEnum):
    """The gates that have an effect in Flotilla."""

    COMPARING_TOLERATIONS = "TaintTolerationComparisonOperators"
    DEVICE_ALTERNATIVES = "DRAPrioritizedList"
    EXPECTED_NODE = "NominatedNodeNameForExpectation"
    RESOURCES_BY_DEVICES = "DRAExtendedResource"
    SPREAD_BY_LABEL_KEYS = "MatchLabelKeysInPodTopologySpread"
    STORAGE_SCORING = "StorageCapacityScoring"
    VOLUME_DRIVERS = "VolumeLimitScaling"


_ALWAYS: Final = "Flotilla always works as with it"
_NEVER: Final = "Flotilla does not have it"
_FIXED: Final[Mapping[str, str]] = {
    "CoordinatedLeaderElection": "each service elects its leader by a Lease of its own",
    "DRAConsumableCapacity": _ALWAYS,
    "DRADeviceBindingConditions": _ALWAYS,
    "DRADeviceTaintRules": _NEVER,
    "DRADeviceTaints": _ALWAYS,
    "DRAListTypeAttributes": _NEVER,
    "DRANodeAllocatableResources": _NEVER,
    "DRAPartitionableDevices": _ALWAYS,
    "DRAResourceClaimDeviceStatus": _ALWAYS,
    "DRASchedulerFilterTimeout": "a search for devices always ends after a number of steps",
    "InPlacePodLevelResourcesVerticalScaling": _ALWAYS,
    "NodeDeclaredFeatures": f"{_ALWAYS}; a profile can disable the plugin",
    "PodLevelResources": _ALWAYS,
    "SchedulerAsyncPreemption": "victims are always evicted in the background",
    "SchedulerPopFromBackoffQ": _ALWAYS,
}
"""Gates of scheduling that stay at their default, and why."""
_GANGS: Final = frozenset(
    {
        "DRAWorkloadResourceClaims",
        "GangScheduling",
        "GenericWorkload",
        "TopologyAwareWorkloadScheduling",
        "WorkloadAwarePreemption",
    }
)
"""Gates that a kube-scheduler needs for gangs, and Flotilla does not."""

_NAMES: Final[Mapping[Gate, str]] = {
    Gate(Stage.ALPHA, default=False, locked=False): """
        APIServingWithRoutine AllowUnsafeMalformedObjectDeletion CBORServingAndStorage
        CPUManagerPolicyAlphaOptions CRIListStreaming CSIVolumeHealth ClientsAllowCBOR ClientsPreferCBOR
        CloudControllerManagerWatchBasedRoutesReconciliation CloudControllerManagerWebhook ContainerStopSignals
        CrossNamespaceVolumeDataSource DRAListTypeAttributes DRANodeAllocatableResources DRAResourcePoolStatus
        DRAWorkloadResourceClaims EventedPLEG GangScheduling GenericWorkload HPAScaleToZero
        ImageVolumeWithDigest InPlacePodVerticalScalingExclusiveCPUs InPlacePodVerticalScalingExclusiveMemory
        KubeletInUserNamespace LoggingAlphaOptions ManifestBasedAdmissionControlConfig MemoryQoS
        MutablePVNodeAffinity NativeHistograms PersistentVolumeClaimUnusedSinceTime PodAndContainerStatsFromCRI
        PodLevelResourceManagers PodLogsQuerySplitStreams PodsAPI QOSReserved ReduceDefaultCrashLoopBackOffDecay
        RuntimeClassInImageCriApi ShardedListAndWatch StorageCapacityScoring StorageVersionAPI
        TaintTolerationComparisonOperators TopologyAwareWorkloadScheduling TopologyManagerPolicyAlphaOptions
        UserNamespacesHostNetworkSupport VolumeLimitScaling WindowsCPUAndMemoryAffinity WorkloadAwarePreemption
        WorkloadWithJob
    """,
    Gate(Stage.BETA, default=True, locked=False): """
        APIResponseCompression APIServerIdentity AllowParsingUserUIDFromCertAuth AtomicFIFO
        AuthorizePodWebsocketUpgradeCreatePermission CPUManagerPolicyBetaOptions CRDObservedGenerationTracking
        ClearingNominatedNodeNameAfterBinding ClientsAllowCARotation ClientsAllowTLSCacheGC ComponentFlagz
        ComponentStatusz ConstrainedImpersonation ContainerCheckpoint ContainerRestartRules ContextualLogging
        DRAConsumableCapacity DRADeviceBindingConditions DRADeviceTaints DRAExtendedResource
        DRAPartitionableDevices DRAResourceClaimDeviceStatus DRAResourceClaimGranularStatusAuthorization
        DRASchedulerFilterTimeout DeclarativeValidationBeta DeploymentReplicaSetTerminatingReplicas
        DetectCacheInconsistency EnvFiles ExtendWebSocketsToKubelet GracefulNodeShutdown
        GracefulNodeShutdownBasedOnPodPriority HPAConfigurableTolerance HostnameOverride
        InOrderInformersBatchProcess InPlacePodLevelResourcesVerticalScaling
        InPlacePodVerticalScalingInitContainers KubeletCrashLoopBackOffMax KubeletEnsureSecretPulledImages
        KubeletSeparateDiskGC KubeletServiceAccountTokenForCredentialProviders ListFromCacheSnapshot
        LoggingBetaOptions MatchLabelKeysInPodTopologySpread MatchLabelKeysInPodTopologySpreadSelectorMerge
        MutablePodResourcesForSuspendedJobs MutableSchedulingDirectivesForSuspendedJobs NodeDeclaredFeatures
        NominatedNodeNameForExpectation OpenAPIEnums OpportunisticBatching PLEGOnDemandRelist PodDeletionCost
        PodLevelResources PodReadyToStartContainersCondition PodTopologyLabelsAdmission PortForwardWebsockets
        PreventStaticPodAPIReferences RelaxedServiceNameValidation ReloadKubeletClientCAFile
        ReloadKubeletServerCertificateFile RemoteRequestHeaderUID ResourceHealthStatus
        ResourceHealthStatusMessage RestartAllContainersOnContainerExits RotateKubeletServerCertificate
        SchedulerAsyncPreemption SchedulerPopFromBackoffQ ServiceAccountNodeAudienceRestriction
        SizeBasedListCostEstimate StaleControllerConsistencyDaemonSet StaleControllerConsistencyJob
        StaleControllerConsistencyReplicaSet StaleControllerConsistencyStatefulSet
        StatefulSetSemanticRevisionComparison StorageVersionHash StrictIPCIDRValidation
        StructuredAuthenticationConfigurationEgressSelector StructuredAuthenticationConfigurationJWKSMetrics
        TokenRequestServiceAccountUIDValidation TopologyManagerPolicyBetaOptions
        TranslateStreamCloseWebsocketRequests UnauthenticatedHTTP2DOSMitigation
        UnknownVersionInteroperabilityProxy UnlockWhileProcessingFIFO WatchCacheInitializationPostStartHook
        WatchList WatchListClient WindowsGracefulNodeShutdown
    """,
    Gate(Stage.BETA, default=False, locked=False): """
        ClusterTrustBundle ClusterTrustBundleProjection ConcurrentWatchObjectDecode CoordinatedLeaderElection
        DRADeviceTaintRules LocalStorageCapacityIsolationFSQuotaMonitoring MaxUnavailableStatefulSet
        PodCertificateRequest SELinuxMount SchedulerAsyncAPICalls StorageVersionMigrator
    """,
    Gate(Stage.GA, default=True, locked=False): """
        AllowServiceExternalIPs CustomCPUCFSQuotaPeriod DRAPrioritizedList InformerResourceVersion
        MutatingAdmissionPolicy
    """,
    Gate(Stage.GA, default=True, locked=True): """
        APIServerTracing AnonymousAuthConfigurableEndpoints AnyVolumeDataSource AuthorizeNodeWithSelectors
        AuthorizeWithSelectors BtreeWatchCache CPUManagerPolicyOptions CRDValidationRatcheting
        CSIServiceAccountTokenSecrets ConsistentListFromCache CustomResourceFieldSelectors DRAAdminAccess
        DeclarativeValidation DisableAllocatorDualWrite DynamicResourceAllocation ExecProbeTimeout
        ExternalServiceAccountTokenSigner ImageMaximumGCAge ImageVolume InOrderInformers
        InPlacePodVerticalScaling JobBackoffLimitPerIndex JobManagedBy JobPodReplacementPolicy JobSuccessPolicy
        KubeletCgroupDriverFromCRI KubeletFineGrainedAuthz KubeletPSI KubeletPodResourcesDynamicResources
        KubeletPodResourcesGet KubeletTracing LogarithmicScaleDown MatchLabelKeysInPodAffinity
        MultiCIDRServiceAllocator MutableCSINodeAllocatableCount NFTablesProxyMode
        NodeInclusionPolicyInPodTopologySpread NodeLogQuery NodeSwap OrderedNamespaceDeletion
        PodLifecycleSleepAction PodLifecycleSleepActionAllowZero PodObservedGenerationTracking
        PodSchedulingReadiness PreferSameTrafficDistribution ProcMountType RecoverVolumeExpansionFailure
        RecursiveReadOnlyMounts RelaxedDNSSearchValidation RelaxedEnvironmentVariableValidation
        ResilientWatchCacheInitialization RetryGenerateName SELinuxChangePolicy SELinuxMountReadWriteOncePod
        SchedulerQueueingHints SeparateTaintEvictionController ServiceAccountTokenJTI
        ServiceAccountTokenNodeBinding ServiceAccountTokenNodeBindingValidation ServiceAccountTokenPodNodeInfo
        SidecarContainers StreamingCollectionEncodingToJSON StreamingCollectionEncodingToProtobuf
        StructuredAuthenticationConfiguration SupplementalGroupsPolicy SystemdWatchdog
        TopologyManagerPolicyOptions UserNamespacesSupport VolumeAttributesClass WinDSR WinOverlay
    """,
    Gate(Stage.DEPRECATED, default=True, locked=False): """
        DisableCPUQuotaWithExclusiveCPUs KubeletPodResourcesListUseActivePods ServiceCIDRStatusFieldWiping
        StorageNamespaceIndex
    """,
    Gate(Stage.DEPRECATED, default=False, locked=False): """
        AllowDNSOnlyNodeCSR AllowInsecureKubeletCertificateSigningRequests ChangeContainerStatusOnKubeletRestart
        DeclarativeValidationTakeover KMSv1 KubeletRegistrationGetOnExistsOnly WindowsHostNetwork
    """,
    Gate(Stage.DEPRECATED, default=True, locked=True): """
        AggregatedDiscoveryRemoveBetaType DisableNodeKubeProxyVersion
    """,
    Gate(Stage.DEPRECATED, default=False, locked=True): """
        AllowOverwriteTerminationGracePeriodSeconds GitRepoVolumeDriver SeparateCacheWatchRPC
    """,
}

_DEPENDENCIES: Final = """
    AuthorizeNodeWithSelectors: AuthorizeWithSelectors
    ClusterTrustBundleProjection: ClusterTrustBundle
    DRAAdminAccess: DynamicResourceAllocation
    DRAConsumableCapacity: DynamicResourceAllocation
    DRADeviceBindingConditions: DRAResourceClaimDeviceStatus DynamicResourceAllocation
    DRADeviceTaintRules: DRADeviceTaints
    DRADeviceTaints: DynamicResourceAllocation
    DRAExtendedResource: DynamicResourceAllocation
    DRAListTypeAttributes: DynamicResourceAllocation
    DRANodeAllocatableResources: DynamicResourceAllocation
    DRAPartitionableDevices: DynamicResourceAllocation
    DRAPrioritizedList: DynamicResourceAllocation
    DRAResourceClaimGranularStatusAuthorization: DRAResourceClaimDeviceStatus DynamicResourceAllocation
    DRAResourcePoolStatus: DynamicResourceAllocation
    DRASchedulerFilterTimeout: DynamicResourceAllocation
    DRAWorkloadResourceClaims: DynamicResourceAllocation GenericWorkload
    DeclarativeValidationBeta: DeclarativeValidation
    DeclarativeValidationTakeover: DeclarativeValidation
    DisableAllocatorDualWrite: MultiCIDRServiceAllocator
    ExtendWebSocketsToKubelet: NodeDeclaredFeatures
    GangScheduling: GenericWorkload
    GracefulNodeShutdownBasedOnPodPriority: GracefulNodeShutdown
    ImageVolumeWithDigest: ImageVolume
    InPlacePodLevelResourcesVerticalScaling: InPlacePodVerticalScaling NodeDeclaredFeatures PodLevelResources
    InPlacePodVerticalScalingExclusiveCPUs: InPlacePodVerticalScaling
    InPlacePodVerticalScalingExclusiveMemory: InPlacePodVerticalScaling
    InPlacePodVerticalScalingInitContainers: InPlacePodVerticalScaling NodeDeclaredFeatures
    MatchLabelKeysInPodTopologySpreadSelectorMerge: MatchLabelKeysInPodTopologySpread
    PodCertificateRequest: AuthorizeNodeWithSelectors
    PodLevelResourceManagers: PodLevelResources
    PodLifecycleSleepActionAllowZero: PodLifecycleSleepAction
    ProcMountType: UserNamespacesSupport
    ResourceHealthStatus: DynamicResourceAllocation
    ResourceHealthStatusMessage: ResourceHealthStatus
    RestartAllContainersOnContainerExits: ContainerRestartRules NodeDeclaredFeatures
    ServiceAccountTokenNodeBinding: ServiceAccountTokenNodeBindingValidation
    StaleControllerConsistencyDaemonSet: AtomicFIFO
    StaleControllerConsistencyJob: AtomicFIFO
    StaleControllerConsistencyReplicaSet: AtomicFIFO
    StaleControllerConsistencyStatefulSet: AtomicFIFO
    StorageVersionAPI: APIServerIdentity
    StructuredAuthenticationConfigurationEgressSelector: StructuredAuthenticationConfiguration
    StructuredAuthenticationConfigurationJWKSMetrics: StructuredAuthenticationConfiguration
    TopologyAwareWorkloadScheduling: GenericWorkload
    UnknownVersionInteroperabilityProxy: APIServerIdentity
    UserNamespacesHostNetworkSupport: NodeDeclaredFeatures UserNamespacesSupport
    WindowsGracefulNodeShutdown: GracefulNodeShutdown
    WorkloadAwarePreemption: GangScheduling
    WorkloadWithJob: GenericWorkload
"""
"""A gate that is on needs these to be on."""


def _known() -> Mapping[str, Gate]:
    gates = {name: gate for gate, names in _NAMES.items() for name in names.split()}
    return MappingProxyType(gates)


def _dependencies() -> Iterator[tuple[str, str]]:
    for line in _DEPENDENCIES.strip().splitlines():
        name, _, needed = line.strip().partition(": ")
        for other in needed.split():
            yield name, other


KNOWN: Final = _known()
DEPENDENCIES: Final = tuple(_dependencies())
_EFFECTIVE: Final = frozenset(map(str, Feature))
_DEFAULTS_ON: Final = frozenset(name for name, gate in KNOWN.items() if gate.default)
_OF_STAGE: Final = {"AllAlpha": Stage.ALPHA, "AllBeta": Stage.BETA}
"""Names that set every gate of a stage which is not set by its own name."""
_VALUES: Final = {
    **dict.fromkeys(("1", "t", "T", "true", "True", "TRUE"), True),
    **dict.fromkeys(("0", "f", "F", "false", "False", "FALSE"), False),
}


class InvalidFeatureGates(ValueError):
    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("; ".join(problems))


@dataclass(frozen=True)
class FeatureGates:
    """Which gates are on. `given`: those that were set, with their values, by name."""

    given: tuple[tuple[str, bool], ...] = ()

    @classmethod
    def parse(cls, text: str) -> "FeatureGates":
        """Read `A=true,B=false`; the last value of a gate counts. Raises InvalidFeatureGates with all that is wrong."""
        given: dict[str, bool] = {}
        problems = []
        for part in text.split(","):
            name, equals, value = (each.strip() for each in part.partition("="))
            if value in _VALUES:
                given[name] = _VALUES[value]
            elif equals:
                problems.append(f"{name} takes true or false, not {value!r}")
            elif name:
                problems.append(f"{name} has no value: gates are set like A=true,B=false")
        gates = cls(tuple(sorted(given.items())))
        problems += gates._problems()
        if problems:
            raise InvalidFeatureGates(problems)
        return gates

    def enabled(self, feature: Feature) -> bool:
        return feature in self._on

    def __str__(self) -> str:
        """As `parse` reads it, in the order of names."""
        return ",".join(f"{name}={'true' if value else 'false'}" for name, value in self.given)

    def effect(self) -> str:
        """What differs from the defaults, of gates that have an effect, or `defaults`."""
        values = {str(feature): self.enabled(feature) for feature in Feature}
        changed = [(name, value) for name, value in values.items() if value != KNOWN[name].default]
        return str(FeatureGates(tuple(sorted(changed)))) or "defaults"

    def notes(self) -> list[str]:
        """A line for each gate that was set and should not be, or has no effect."""
        notes = []
        for name, _ in self.given:
            gate = KNOWN.get(name)
            if gate is None:
                continue
            if gate.stage in (Stage.GA, Stage.DEPRECATED):
                notes.append(f"{name} is {gate.stage}: it will be removed in a future release of Kubernetes")
            if name in _GANGS:
                notes.append(f"{name} has no effect: gangs are scheduled whenever the API server has pod groups")
            elif name not in _EFFECTIVE and name not in _FIXED:
                notes.append(f"{name} has no effect: it does not concern scheduling, or not as Flotilla does it")
        return notes

    @cached_property
    def _on(self) -> frozenset[str]:
        values: dict[str, bool] = {}
        for name, value in self.given:
            stage = _OF_STAGE.get(name)
            if stage is not None:
                values |= {other: value for other, gate in KNOWN.items() if gate.stage is stage}
        values |= dict(self.given)
        return _DEFAULTS_ON.difference(values) | {name for name, value in values.items() if value}

    def _problems(self) -> Iterator[str]:
        for name, value in self.given:
            if name in _OF_STAGE:
                continue
            gate = KNOWN.get(name)
            if gate is None:
                yield f"there is no feature gate {name!r} in v1.36{did_you_mean(name, KNOWN)}"
            elif gate.locked and value != gate.default:
                yield f"{name} cannot be changed: v1.36 locks it {_on_or_off(gate.default)}"
        for name, why in _FIXED.items():
            default = KNOWN[name].default
            if (name in self._on) != default:
                yield f"{name} cannot be turned {_on_or_off(not default)} in Flotilla: {why}"
        for name, needed in DEPENDENCIES:
            if name in self._on and needed not in self._on:
                yield f"{name} is on, but needs {needed}, which is off"


DEFAULT_GATES: Final = FeatureGates()


def _on_or_off(value: bool) -> str:
    return "on" if value else "off"
