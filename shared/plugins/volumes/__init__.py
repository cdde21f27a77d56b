"""What volumes mean for where a pod can go: claims, the volumes bound to them, their zones, limits and conflicts."""
