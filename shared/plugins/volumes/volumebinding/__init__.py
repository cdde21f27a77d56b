"""VolumeBinding: pods go where their volumes can be reached, found or made; and volumes get bound to their claims."""
