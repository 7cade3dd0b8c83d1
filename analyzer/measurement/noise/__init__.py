"""What disturbs a measurement, and how repeated timings are taken and summarised in spite of it."""
