"""The stages joined: targets, measuring, forecasting, sweeping, and the record assembled."""
