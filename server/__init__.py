"""Composition root: command line, configuration, access and metrics. It may import every
package."""
