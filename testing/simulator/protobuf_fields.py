"""The fields of the messages that the simulator decodes, by message: number, name and type of each.

A type is a message of this table, a word of `protobuf`, or missing for a string; `*` is a list, `{}` a map with strings
as keys. A field named `+` holds fields that JSON has in the object itself.
"""

FIELDS = """
Namespace 1:metadata:ObjectMeta 2:spec:NamespaceSpec 3:status:ignored
Deployment 1:metadata:ObjectMeta 2:spec:DeploymentSpec 3:status:ignored
Job 1:metadata:ObjectMeta 2:spec:JobSpec 3:status:ignored
CronJob 1:metadata:ObjectMeta 2:spec:CronJobSpec 3:status:ignored
ConfigMap 1:metadata:ObjectMeta 2:data:{string} 3:binaryData:{bytes} 4:immutable:bool
Secret 1:metadata:ObjectMeta 2:data:{bytes} 3:type 4:stringData:{string} 5:immutable:bool
Service 1:metadata:ObjectMeta 2:spec:ServiceSpec 3:status:ignored
ServiceAccount 1:metadata:ObjectMeta 2:secrets:ObjectReference* 3:imagePullSecrets:LocalObjectReference*
  4:automountServiceAccountToken:bool
PodDisruptionBudget 1:metadata:ObjectMeta 2:spec:PodDisruptionBudgetSpec 3:status:ignored
PriorityClass 1:metadata:ObjectMeta 2:value:int 3:globalDefault:flag 4:description 5:preemptionPolicy
ResourceQuota 1:metadata:ObjectMeta 2:spec:ResourceQuotaSpec 3:status:ignored
Role 1:metadata:ObjectMeta 2:rules:PolicyRule*
RoleBinding 1:metadata:ObjectMeta 2:subjects:Subject* 3:roleRef:RoleRef
ClusterRole 1:metadata:ObjectMeta 2:rules:PolicyRule*
ClusterRoleBinding 1:metadata:ObjectMeta 2:subjects:Subject* 3:roleRef:RoleRef
DeleteOptions 1:gracePeriodSeconds:int 2:preconditions:Preconditions 3:orphanDependents:bool 4:propagationPolicy
  5:dryRun:string*
Eviction 1:metadata:ObjectMeta 2:deleteOptions:DeleteOptions
Pod 1:metadata:ObjectMeta 2:spec:PodSpec 3:status:ignored
ReplicaSet 1:metadata:ObjectMeta 2:spec:ReplicaSetSpec 3:status:ignored
StatefulSet 1:metadata:ObjectMeta 2:spec:StatefulSetSpec 3:status:ignored
DaemonSet 1:metadata:ObjectMeta 2:spec:DaemonSetSpec 3:status:ignored
ObjectMeta 1:name 2:generateName 3:namespace 4:selfLink 5:uid 6:resourceVersion 7:generation:number
  8:creationTimestamp:Time 9:deletionTimestamp:Time 10:deletionGracePeriodSeconds:int 11:labels:{string}
  12:annotations:{string} 13:ownerReferences:OwnerReference* 14:finalizers:string* 17:managedFields:ignored
NamespaceSpec 1:finalizers:string*
DeploymentSpec 1:replicas:int 2:selector:LabelSelector 3:template:PodTemplateSpec 4:strategy:DeploymentStrategy
  5:minReadySeconds:number 6:revisionHistoryLimit:int 7:paused:flag 9:progressDeadlineSeconds:int
JobSpec 1:parallelism:int 2:completions:int 3:activeDeadlineSeconds:int 4:selector:LabelSelector 5:manualSelector:bool
  6:template:PodTemplateSpec 7:backoffLimit:int 8:ttlSecondsAfterFinished:int 9:completionMode 10:suspend:bool
  12:backoffLimitPerIndex:int 13:maxFailedIndexes:int 14:podReplacementPolicy 15:managedBy
CronJobSpec 1:schedule 2:startingDeadlineSeconds:int 3:concurrencyPolicy 4:suspend:bool 5:jobTemplate:JobTemplateSpec
  6:successfulJobsHistoryLimit:int 7:failedJobsHistoryLimit:int 8:timeZone
ServiceSpec 1:ports:ServicePort* 2:selector:{string} 3:clusterIP 4:type 5:externalIPs:string* 7:sessionAffinity
  8:loadBalancerIP 9:loadBalancerSourceRanges:string* 10:externalName 11:externalTrafficPolicy
  12:healthCheckNodePort:number 13:publishNotReadyAddresses:flag 17:ipFamilyPolicy 18:clusterIPs:string*
  19:ipFamilies:string* 20:allocateLoadBalancerNodePorts:bool 21:loadBalancerClass 22:internalTrafficPolicy
  23:trafficDistribution
ObjectReference 1:kind 2:namespace 3:name 4:uid 5:apiVersion 6:resourceVersion 7:fieldPath
LocalObjectReference 1:name
PodDisruptionBudgetSpec 1:minAvailable:IntOrString 2:selector:LabelSelector 3:maxUnavailable:IntOrString
  4:unhealthyPodEvictionPolicy
ResourceQuotaSpec 1:hard:{Quantity} 2:scopes:string*
PolicyRule 1:verbs:string* 2:apiGroups:string* 3:resources:string* 4:resourceNames:string* 5:nonResourceURLs:string*
Subject 1:kind 2:apiGroup 3:name 4:namespace
RoleRef 1:apiGroup 2:kind 3:name
Preconditions 1:uid
PodSpec 1:volumes:Volume* 2:containers:Container* 3:restartPolicy 4:terminationGracePeriodSeconds:int
  5:activeDeadlineSeconds:int 6:dnsPolicy 7:nodeSelector:{string} 8:serviceAccountName 9:serviceAccount 10:nodeName
  11:hostNetwork:flag 12:hostPID:flag 13:hostIPC:flag 14:securityContext:PodSecurityContext
  15:imagePullSecrets:LocalObjectReference* 16:hostname 17:subdomain 18:affinity:Affinity 19:schedulerName
  20:initContainers:Container* 21:automountServiceAccountToken:bool 22:tolerations:Toleration* 24:priorityClassName
  25:priority:int 27:shareProcessNamespace:bool 29:runtimeClassName 30:enableServiceLinks:bool 31:preemptionPolicy
  32:overhead:{Quantity} 33:topologySpreadConstraints:TopologySpreadConstraint* 35:setHostnameAsFQDN:bool
  37:hostUsers:bool 38:schedulingGates:PodSchedulingGate* 39:resourceClaims:PodResourceClaim*
  40:resources:ResourceRequirements 41:hostnameOverride 43:schedulingGroup:PodSchedulingGroup
ReplicaSetSpec 1:replicas:int 2:selector:LabelSelector 3:template:PodTemplateSpec 4:minReadySeconds:number
StatefulSetSpec 1:replicas:int 2:selector:LabelSelector 3:template:PodTemplateSpec
  4:volumeClaimTemplates:PersistentVolumeClaim* 5:serviceName 6:podManagementPolicy
  7:updateStrategy:StatefulSetUpdateStrategy 8:revisionHistoryLimit:int 9:minReadySeconds:number
  11:ordinals:StatefulSetOrdinals
DaemonSetSpec 1:selector:LabelSelector 2:template:PodTemplateSpec 3:updateStrategy:DaemonSetUpdateStrategy
  4:minReadySeconds:number 6:revisionHistoryLimit:int
OwnerReference 1:kind 3:name 4:uid 5:apiVersion 6:controller:bool 7:blockOwnerDeletion:bool
LabelSelector 1:matchLabels:{string} 2:matchExpressions:LabelSelectorRequirement*
PodTemplateSpec 1:metadata:ObjectMeta 2:spec:PodSpec
DeploymentStrategy 1:type 2:rollingUpdate:RollingUpdateDeployment
JobTemplateSpec 1:metadata:ObjectMeta 2:spec:JobSpec
ServicePort 1:name 2:protocol 3:port:int 4:targetPort:IntOrString 5:nodePort:number 6:appProtocol
Volume 1:name 2:+:VolumeSource
Container 1:name 2:image 3:command:string* 4:args:string* 5:workingDir 6:ports:ContainerPort* 7:env:EnvVar*
  8:resources:ResourceRequirements 9:volumeMounts:VolumeMount* 10:livenessProbe:Probe 11:readinessProbe:Probe
  13:terminationMessagePath 14:imagePullPolicy 15:securityContext:SecurityContext 16:stdin:flag 17:stdinOnce:flag
  18:tty:flag 19:envFrom:EnvFromSource* 20:terminationMessagePolicy 22:startupProbe:Probe 24:restartPolicy
PodSecurityContext 2:runAsUser:int 3:runAsNonRoot:bool 4:supplementalGroups:int* 5:fsGroup:int 6:runAsGroup:int
  9:fsGroupChangePolicy 10:seccompProfile:SeccompProfile 12:supplementalGroupsPolicy 13:seLinuxChangePolicy
Affinity 1:nodeAffinity:NodeAffinity 2:podAffinity:PodAffinity 3:podAntiAffinity:PodAntiAffinity
Toleration 1:key 2:operator 3:value 4:effect 5:tolerationSeconds:int
TopologySpreadConstraint 1:maxSkew:int 2:topologyKey 3:whenUnsatisfiable 4:labelSelector:LabelSelector
  5:minDomains:int 6:nodeAffinityPolicy 7:nodeTaintsPolicy 8:matchLabelKeys:string*
PodSchedulingGate 1:name
PodResourceClaim 1:name 3:resourceClaimName 4:resourceClaimTemplateName
ResourceRequirements 1:limits:{Quantity} 2:requests:{Quantity} 3:claims:ResourceClaim*
PodSchedulingGroup 1:podGroupName
PersistentVolumeClaim 1:metadata:ObjectMeta 2:spec:PersistentVolumeClaimSpec 3:status:ignored
StatefulSetUpdateStrategy 1:type 2:rollingUpdate:RollingUpdateStatefulSetStrategy
StatefulSetOrdinals 1:start:int
DaemonSetUpdateStrategy 1:type 2:rollingUpdate:RollingUpdateDaemonSet
LabelSelectorRequirement 1:key 2:operator 3:values:string*
RollingUpdateDeployment 1:maxUnavailable:IntOrString 2:maxSurge:IntOrString
VolumeSource 1:hostPath:HostPathVolumeSource 2:emptyDir:EmptyDirVolumeSource 6:secret:SecretVolumeSource
  7:nfs:NFSVolumeSource 8:iscsi:ISCSIVolumeSource 9:glusterfs:GlusterfsVolumeSource
  10:persistentVolumeClaim:PersistentVolumeClaimVolumeSource 16:downwardAPI:DownwardAPIVolumeSource
  19:configMap:ConfigMapVolumeSource 26:projected:ProjectedVolumeSource 28:csi:CSIVolumeSource
ContainerPort 1:name 2:hostPort:number 3:containerPort:int 4:protocol 5:hostIP
EnvFromSource 1:prefix 2:configMapRef:ConfigMapEnvSource 3:secretRef:SecretEnvSource
EnvVar 1:name 2:value 3:valueFrom:EnvVarSource
VolumeMount 1:name 2:readOnly:flag 3:mountPath 4:subPath 5:mountPropagation 6:subPathExpr 7:recursiveReadOnly
  8:bindMountOptions:string*
Probe 1:+:ProbeHandler 2:initialDelaySeconds:number 3:timeoutSeconds:number 4:periodSeconds:number
  5:successThreshold:number 6:failureThreshold:number 7:terminationGracePeriodSeconds:int
SecurityContext 1:capabilities:Capabilities 2:privileged:bool 4:runAsUser:int 5:runAsNonRoot:bool
  6:readOnlyRootFilesystem:bool 7:allowPrivilegeEscalation:bool 8:runAsGroup:int 9:procMount
  11:seccompProfile:SeccompProfile
SeccompProfile 1:type 2:localhostProfile
NodeAffinity 1:requiredDuringSchedulingIgnoredDuringExecution:NodeSelector
  2:preferredDuringSchedulingIgnoredDuringExecution:PreferredSchedulingTerm*
PodAffinity 1:requiredDuringSchedulingIgnoredDuringExecution:PodAffinityTerm*
  2:preferredDuringSchedulingIgnoredDuringExecution:WeightedPodAffinityTerm*
PodAntiAffinity 1:requiredDuringSchedulingIgnoredDuringExecution:PodAffinityTerm*
  2:preferredDuringSchedulingIgnoredDuringExecution:WeightedPodAffinityTerm*
ResourceClaim 1:name 2:request
PersistentVolumeClaimSpec 1:accessModes:string* 2:resources:VolumeResourceRequirements 3:volumeName
  4:selector:LabelSelector 5:storageClassName 6:volumeMode 7:dataSource:TypedLocalObjectReference
  8:dataSourceRef:TypedObjectReference 9:volumeAttributesClassName
RollingUpdateStatefulSetStrategy 1:partition:int 2:maxUnavailable:IntOrString
RollingUpdateDaemonSet 1:maxUnavailable:IntOrString 2:maxSurge:IntOrString
HostPathVolumeSource 1:path 2:type
EmptyDirVolumeSource 1:medium 2:sizeLimit:Quantity 3:mode:int
SecretVolumeSource 1:secretName 2:items:KeyToPath* 3:defaultMode:int 4:optional:bool
NFSVolumeSource 1:server 2:path 3:readOnly:flag
ISCSIVolumeSource 1:targetPortal 2:iqn 3:lun:int 4:iscsiInterface 5:fsType 6:readOnly:flag 7:portals:string*
  8:chapAuthDiscovery:bool 10:secretRef:LocalObjectReference 11:chapAuthSession:bool 12:initiatorName
GlusterfsVolumeSource 1:endpoints 2:path 3:readOnly:flag
PersistentVolumeClaimVolumeSource 1:claimName 2:readOnly:flag
DownwardAPIVolumeSource 1:items:DownwardAPIVolumeFile* 2:defaultMode:int
ConfigMapVolumeSource 1:+:LocalObjectReference 2:items:KeyToPath* 3:defaultMode:int 4:optional:bool
ProjectedVolumeSource 1:sources:VolumeProjection* 2:defaultMode:int
CSIVolumeSource 1:driver 2:readOnly:flag 3:fsType 4:volumeAttributes:{string}
  5:nodePublishSecretRef:LocalObjectReference
ConfigMapEnvSource 1:+:LocalObjectReference 2:optional:bool
SecretEnvSource 1:+:LocalObjectReference 2:optional:bool
EnvVarSource 1:fieldRef:ObjectFieldSelector 2:resourceFieldRef:ResourceFieldSelector
  3:configMapKeyRef:ConfigMapKeySelector 4:secretKeyRef:SecretKeySelector
ProbeHandler 1:exec:ExecAction 2:httpGet:HTTPGetAction 3:tcpSocket:TCPSocketAction 4:grpc:GRPCAction
Capabilities 1:add:string* 2:drop:string*
NodeSelector 1:nodeSelectorTerms:NodeSelectorTerm*
PreferredSchedulingTerm 1:weight:int 2:preference:NodeSelectorTerm
PodAffinityTerm 1:labelSelector:LabelSelector 2:namespaces:string* 3:topologyKey 4:namespaceSelector:LabelSelector
  5:matchLabelKeys:string* 6:mismatchLabelKeys:string*
WeightedPodAffinityTerm 1:weight:int 2:podAffinityTerm:PodAffinityTerm
VolumeResourceRequirements 1:limits:{Quantity} 2:requests:{Quantity}
TypedLocalObjectReference 1:apiGroup 2:kind 3:name
TypedObjectReference 1:apiGroup 2:kind 3:name 4:namespace
KeyToPath 1:key 2:path 3:mode:int
DownwardAPIVolumeFile 1:path 2:fieldRef:ObjectFieldSelector 3:resourceFieldRef:ResourceFieldSelector 4:mode:int
VolumeProjection 1:secret:SecretProjection 2:downwardAPI:DownwardAPIProjection 3:configMap:ConfigMapProjection
ObjectFieldSelector 1:apiVersion 2:fieldPath
ResourceFieldSelector 1:containerName 2:resource 3:divisor:Quantity
ConfigMapKeySelector 1:+:LocalObjectReference 2:key 3:optional:bool
SecretKeySelector 1:+:LocalObjectReference 2:key 3:optional:bool
ExecAction 1:command:string*
HTTPGetAction 1:path 2:port:IntOrString 3:host 4:scheme 5:httpHeaders:HTTPHeader* 6:protocol
TCPSocketAction 1:port:IntOrString 2:host
GRPCAction 1:port:int 2:service 3:mode
NodeSelectorTerm 1:matchExpressions:NodeSelectorRequirement* 2:matchFields:NodeSelectorRequirement*
SecretProjection 1:+:LocalObjectReference 2:items:KeyToPath* 4:optional:bool
DownwardAPIProjection 1:items:DownwardAPIVolumeFile*
ConfigMapProjection 1:+:LocalObjectReference 2:items:KeyToPath* 4:optional:bool
HTTPHeader 1:name 2:value
NodeSelectorRequirement 1:key 2:operator 3:values:string*
"""
