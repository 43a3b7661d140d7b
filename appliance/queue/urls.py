"""Where the pages of this room are. A queue id is written in capitals, so no page is named like one."""

from __future__ import annotations

from django.urls import path, register_converter

from appliance.queue import ages, body_views, change_views, export, message_views, past_views, search_views, views
from appliance.queue.queue_id import QueueIdConverter

register_converter(QueueIdConverter, "queue_id")

app_name = "queue"
urlpatterns = [
    path("", views.page, name="list"),
    path("rows/", views.rows, name="rows"),
    path("then/", past_views.then, name="then"),
    path("names/", views.names, name="names"),
    path("csv/", export.csv, name="csv"),
    path("ages/", ages.ages, name="ages"),
    path("search/", search_views.search, name="search"),
    path("search/found/", search_views.found, name="found"),
    path("change/<slug:operation>/", change_views.chosen_messages, name="chosen"),
    path("changes/", change_views.changes, name="changes"),
    path("changes/count/", change_views.begin, name="count"),
    path("changes/<slug:tag>/", change_views.change, name="change"),
    path("changes/<slug:tag>/go/", change_views.start, name="go"),
    path("changes/<slug:tag>/stop/", change_views.stop, name="stop"),
    path("changes/<slug:tag>/undo/", change_views.take_back, name="undo"),
    path("<queue_id:queue_id>/", message_views.message, name="message"),
    path("<queue_id:queue_id>/recipients/", message_views.recipients, name="recipients"),
    path("<queue_id:queue_id>/waiting/", message_views.waiting, name="waiting"),
    path("<queue_id:queue_id>/body/", body_views.body, name="body"),
    path("<queue_id:queue_id>/raw/", body_views.raw, name="raw"),
    path("<queue_id:queue_id>/eml/", body_views.eml, name="eml"),
]
