"""What CI servers read of findings: annotations, JUnit, SARIF."""
