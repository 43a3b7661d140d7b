"""URLs of the report pages."""

from __future__ import annotations

from django.urls import path

from appliance.reports import run_views, views

app_name = "reports"
urlpatterns = [
    path("", views.reports, name="reports"),
    path("run/", run_views.run_now, name="run_now"),
    path("runs/<int:pk>/", run_views.run, name="run"),
    path("runs/<int:pk>/stop/", run_views.stop, name="stop"),
    path("schedules/", views.schedules, name="schedules"),
    path("schedules/<int:pk>/", views.schedule, name="schedule"),
    path("<slug:period>/<slug:start>/", views.report, name="report"),
    path("<slug:period>/<slug:start>/<slug:table>.csv", views.csv, name="csv"),
    path("<slug:period>/<slug:start>/<slug:table>.parquet", views.parquet, name="parquet"),
]
