"""The public interface of Flotilla, for authors of plugins.

`flotilla.plugin` has everything that a plugin imports, `flotilla.testing` tests one without a cluster. Every other
package of this project is private and may change with any release.
"""
