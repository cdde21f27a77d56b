"""Words that an anonymized recording keeps: those of Kubernetes, and those of which Flotilla makes its messages.

So the message about a pod comes out alike with pseudonyms. A test finds words that are missing here.
"""

WORDS = frozenset(
    """
0.0.0.0 127.0.0.1 a about access add affinity after again all allocate allocated allocation alone already alternatives
Always AlwaysAllow amd64 an and another answered anti anti-affinity any apply apps apps.kubernetes.io arch are arguments
arm64 asked asks at Available available AWS aws-ebs azure-disk azure-file AzureDiskLimits back balance batch
batch.kubernetes.io be because been begun being best beta.kubernetes.io bind binding Block bool Bound bound but by bytes
calls candidate cannot capacity CEL changed changes check cinder cinder.csi.openstack.org CinderLimits claim ClaimRef
claims class cluster comes committed compile completed composite conflict constraint constraints ContainersReady context
control-plane controller controller-uid converting could count counter counts cpu create created CronJob CSI csi
CSIDriver CSINode CSIStorageCapacity currently cycle-state cycleState d DaemonSet deadline deallocate deallocated
deallocation decided decision default default-scheduler DefaultBinder DefaultPreemption deferred delete
delete-protection deleted deletion Deployment derives device deviceclass.resource.k8s.io devices did didn disabled disk
disk-pressure disk.csi.azure.com DiskPressure disks DisruptionTarget do docker.io does doesn DoesNotExist DoNotSchedule
DRAPrioritizedList driver due DynamicResources each EBS ebs.csi.aws.com EBSLimits eligible elsewhere empty encountered
ended enough ephemeral ephemeral-storage Equal error even exactly exceed exceeded exceeds exist existing Exists expected
expression extended ExtendedResourceClaimStatus extenders extension Failed failed failure-domain.beta.kubernetes.io
False false feasible feature features fewer fields file.csi.azure.com Filesystem filter finalizer find first fit
flotilla.plugin for format found free FreedPorts from fulfilled further gang GangRound gates gce-pd GCEPDLimits get gets
given got gotten group groups Gt had has have helpful holds Honor hostname how ID IfHealthyBudget IfNotPresent Ignore
ImageLocality Immediate immediate imported In in in-use incoming Initialized inline installed instance-type instead
Insufficient int InterPodAffinity Invalid invalid is it its itself Job job-name judge judged keep kube-node-lease
kube-public kube-system Kubernetes kubernetes.io label labels latest least left less library lie limit linux locale
looking Lost lower Lt made make many map master match matching max may meantime member members memory memory-pressure
MemoryPressure merged merging message metadata metadata.name minCount missing mode modified more most much multiple must
name names Namespace needed needs neither network-unavailable NetworkUnavailable Never new No no no-provisioner Node
node node-role.kubernetes.io node.cloudprovider.kubernetes.io node.kubernetes.io NodeAffinity NodeDeclaredFeatures
NodeName NodePorts NodePreferAvoidPods NodeResourcesBalancedAllocation NodeResourcesFit nodes NodeSelector
NodeSelectorTerms NodeUnschedulable NodeVolumeLimits NoExecute nominated non-existent None none nor NoSchedule not
not-ready NotIn number object objects of offered offers often on one OnFailure only Operation or os other others out
out-of-service outcome own owner package pd.csi.storage.gke.io Pending persistent PersistentVolume persistentvolume
PersistentVolumeClaim persistentvolumeclaim PersistentVolumeClaims pid-pressure PIDPressure place placed placement
please Plugin plugin plugins Pod pod pod-index pod-name pod-template-hash PodDisruptionBudget PodGroup
PodReadyToStartContainers pods PodScheduled PodTopologySpread point policy pool pools ports portworx-volume Preemption
preemption PreemptionByScheduler preemptionPolicy PreemptLowerPriority preferAvoidPods PreferNoSchedule PreFilter
PreFilterInterPodAffinity PreFilterNodeDeclaredFeatures PreFilterNodePorts PreFilterNodeResourcesFit
PreFilterPodTopologySpread PreFilterVolumeRestrictions PreScore PreScoreInterPodAffinity PreScorePodTopologySpread
PreScoreTaintToleration priority PrioritySort process profile proposed provisioned provisioning pv pv-protection PVC pvc
pvc-protection questions queue random reach read reading ReadOnlyMany ReadWriteMany ReadWriteOnce ReadWriteOncePod Ready
reason region regions rejects Released remove repel ReplicaSet ReplicationController request requested requests required
reservation reset resource resource.k8s.io resource.kubernetes.io ResourceClaim resourceclaim resources
ResourceSlice.NodeSelector retrieve returns room round rules run Running running runtime s same satisfied satisfies
satisfy schedulable schedule ScheduleAnyway scheduled scheduler-enforced SchedulerError scheduling scheduling.k8s.io
SchedulingGated SchedulingGates Score score scored SCTP search selector selectors SelectorSpread sent serve served
Service services set sets shard shards shared should simultaneously single slot small so some sort spec
spec.resourceClaim spec.schedulerName spread StatefulSet statefulset.kubernetes.io Step steps still storage
storage-provisioner StorageClass storageClass storageclass.storage.k8s.io str subrequests Succeeded such suffice
summaries summary supported t table taint taints TaintToleration take taken takes TCP terminating terms than that the
them there this those timed timeout to together tolerate tolerations Too too topology topology.cinder.csi.openstack.org
topology.ebs.csi.aws.com topology.k8s.aws topology.kubernetes.io translate tree tried True true try trying tuple type
UDP unavailable unbound unexpected unfit uninitialized Unknown unknown unreachable Unschedulable unschedulable
unsupported untolerated up update updated use v1 version victim victims Volume volume volume.kubernetes.io
VolumeAttachment VolumeBinding VolumeBindingMode VolumeRestrictions volumes VolumeZone vsphere-volume
WaitForFirstConsumer waiting was weights were what where which windows with without worker workers Workload would yet
your zone zones
""".split()  # noqa: SIM905
)
