"""A pod's volumes, as far as a scheduler reads them."""

from msgspec import field

from shared.model.base import ApiStruct


class PersistentVolumeClaimSource(ApiStruct, frozen=True, kw_only=True):
    """A claim of the pod's namespace."""

    claim_name: str
    read_only: bool = False


class EphemeralSource(ApiStruct, frozen=True, kw_only=True):
    """A claim created for the pod; its name is the pod's name, a dash and the volume's name."""


class ImageSource(ApiStruct, frozen=True, kw_only=True):
    """The content of a container image."""

    reference: str = ""


class GcePersistentDisk(ApiStruct, frozen=True, kw_only=True):
    """A disk of Google Compute Engine."""

    pd_name: str
    read_only: bool = False


class AwsElasticBlockStore(ApiStruct, frozen=True, kw_only=True):
    """A volume of Amazon EBS."""

    volume_id: str = field(name="volumeID")
    read_only: bool = False


class AzureDisk(ApiStruct, frozen=True, kw_only=True):
    """A data disk of Azure."""

    disk_name: str
    disk_uri: str = field(default="", name="diskURI")
    read_only: bool = False


class AzureFile(ApiStruct, frozen=True, kw_only=True):
    """A file share of Azure. Only persistent volumes name the namespace of its secret."""

    share_name: str
    secret_name: str = ""
    secret_namespace: str | None = None
    read_only: bool = False


class Cinder(ApiStruct, frozen=True, kw_only=True):
    """A volume of OpenStack Cinder."""

    volume_id: str = field(name="volumeID")
    read_only: bool = False


class VsphereVolume(ApiStruct, frozen=True, kw_only=True):
    """A virtual disk of vSphere."""

    volume_path: str


class PortworxVolume(ApiStruct, frozen=True, kw_only=True):
    """A volume of Portworx."""

    volume_id: str = field(name="volumeID")
    read_only: bool = False


class Rbd(ApiStruct, frozen=True, kw_only=True):
    """A Ceph block device."""

    monitors: list[str] = field(default_factory=list)
    image: str = ""
    pool: str = "rbd"
    read_only: bool = False


class Iscsi(ApiStruct, frozen=True, kw_only=True):
    """A disk of an iSCSI target."""

    iqn: str
    target_portal: str = ""
    lun: int = 0
    read_only: bool = False


class CsiSource(ApiStruct, frozen=True, kw_only=True):
    """A volume that a CSI driver creates for the pod without a claim."""

    driver: str = ""


class Volume(ApiStruct, frozen=True, kw_only=True):
    """A volume and its source; all sources are None if scheduling ignores it."""

    name: str = ""
    persistent_volume_claim: PersistentVolumeClaimSource | None = None
    ephemeral: EphemeralSource | None = None
    image: ImageSource | None = None
    gce_persistent_disk: GcePersistentDisk | None = None
    aws_elastic_block_store: AwsElasticBlockStore | None = None
    azure_disk: AzureDisk | None = None
    azure_file: AzureFile | None = None
    cinder: Cinder | None = None
    vsphere_volume: VsphereVolume | None = None
    portworx_volume: PortworxVolume | None = None
    rbd: Rbd | None = None
    iscsi: Iscsi | None = None
    csi: CsiSource | None = None
