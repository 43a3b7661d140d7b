"""Where the metrics are. It is added to the table of the site only with [portal] metrics_networks."""

from __future__ import annotations

from django.urls import path

from appliance.metrics import views

app_name = "metrics"
urlpatterns = [path("metrics", views.metrics, name="metrics")]
