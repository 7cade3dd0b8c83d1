"""Findings for CI servers: annotations, JUnit, SARIF."""
