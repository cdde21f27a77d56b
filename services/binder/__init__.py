"""The binder: from a decision to a pod that is bound, or to the reason why it is not."""
