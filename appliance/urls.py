"""Which page is where. Each room has its own table; none is named like a queue id."""

from __future__ import annotations

from django.conf import settings
from django.contrib import admin
from django.urls import include, path

handler400 = "appliance.common.faults.bad_request"
handler500 = "appliance.status.without_database.server_error"
handler429 = "appliance.common.faults.too_many_requests"  # allauth asks for it

urlpatterns = [
    path("", include("appliance.status.overview_urls")),
    path("", include("appliance.live.urls")),
    path("queue/", include("appliance.queue.urls")),
    path("destinations/", include("appliance.destinations.urls")),
    path("tuning/", include("appliance.tuning.urls")),
    path("go/", include("appliance.palette.urls")),
    path("log/", include("appliance.log.urls")),
    path("settings/", include("appliance.managed.urls")),
    path("positions/", include("appliance.status.positions_urls")),
    path("nodes/", include("appliance.status.nodes_urls")),
    path("routes/", include("appliance.status.routes_urls")),
    path("reports/", include("appliance.reports.urls")),
    path("alerts/", include("appliance.alerts.urls")),
    path("webhooks/", include("appliance.webhooks.urls")),
    path("audit/", include("appliance.audit.urls")),
    path("accounts/tokens/", include("appliance.api.token_urls")),
    path("accounts/", include("appliance.accounts.urls")),
    path("api/v1/", include("appliance.api.urls")),
    path("admin/", admin.site.urls),
]
if settings.PORTAL.metrics_networks:
    urlpatterns.append(path("", include("appliance.metrics.urls")))
