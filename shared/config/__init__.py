"""The scheduler's configuration: which plugins run at which extension point, with which weights and arguments."""
