"""URLs of the tuning pages."""

from __future__ import annotations

from django.urls import path

from appliance.tuning import views, views_changes

app_name = "tuning"
urlpatterns = [
    path("", views.parameters, name="parameters"),
    path("diff/", views.diff, name="diff"),
    path("apply/", views.apply_draft, name="apply"),
    path("what-if/", views.what_if, name="what_if"),
    path("predictions/<int:number>/", views.prediction, name="prediction"),
    path("history/", views_changes.history, name="history"),
    path("changes/<uuid:batch>/", views_changes.batch, name="batch"),
    path("changes/<uuid:batch>/windows/", views_changes.windows, name="windows"),
    path("changes/<uuid:batch>/return/", views_changes.return_batch, name="return_batch"),
    path("history/<int:number>/return/", views_changes.return_change, name="return_change"),
]
