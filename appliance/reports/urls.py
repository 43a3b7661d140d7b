"""Where the pages of this room are."""

from __future__ import annotations

from django.urls import path

from appliance.reports import views

app_name = "reports"
urlpatterns = [
    path("", views.reports, name="reports"),
    path("schedules/", views.schedules, name="schedules"),
    path("schedules/<int:pk>/", views.schedule, name="schedule"),
]
