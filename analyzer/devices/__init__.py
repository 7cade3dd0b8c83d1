"""Devices: peaks, bandwidths, links and prices, from the catalogue, from this machine or from a calibration."""
