"""Where the pages of this room are."""

from __future__ import annotations

from django.urls import path

from appliance.queue import views

app_name = "queue"
urlpatterns = [
    path("", views.page, name="list"),
    path("ages/", views.ages, name="ages"),
    path("search/", views.search, name="search"),
]
