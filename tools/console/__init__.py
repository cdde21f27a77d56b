"""The console: a page that shows what a running pipeline does, and can do nothing but look.

The process joins the pipeline's NATS as the user `console`. While nobody looks at the page it asks for nothing and
listens to nothing. Otherwise it keeps a model of the cluster, loaded from the snapshot once and kept current by the
deltas that workers get as well, so that looking costs the snapshot nothing; and it asks the queue what is pending.
"""
