"""Where the pages of this room are. A destination has no slash in its name."""

from __future__ import annotations

from django.urls import path

from appliance.destinations import actions, streams, views

app_name = "destinations"
urlpatterns = [
    path("", views.listed, name="list"),
    path("live", streams.the_list, name="list_stream"),
    path("<path:name>/live", streams.one, name="one_stream"),
    path("<path:name>/suspend/", actions.suspend, name="suspend"),
    path("<path:name>/resume/", actions.resume, name="resume"),
    path("<path:name>/set/", actions.override, name="set"),
    path("<path:name>/take-back/<slug:parameter>/", actions.end, name="take_back"),
    path("<path:name>/", views.one, name="one"),
]
