"""The portal's own metrics, as Prometheus text. The page exists only with [portal] metrics_networks."""
