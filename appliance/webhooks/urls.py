"""Where the pages of this room are."""

from __future__ import annotations

from django.urls import path

from appliance.webhooks import views

app_name = "webhooks"
urlpatterns = [
    path("", views.webhooks, name="webhooks"),
    path("new/", views.new, name="new"),
    path("<int:pk>/", views.webhook, name="webhook"),
    path("<int:pk>/edit/", views.edit, name="edit"),
    path("<int:pk>/secret/", views.secret, name="secret"),
    path("<int:pk>/delete/", views.delete, name="delete"),
    path("<int:pk>/pause/", views.pause, name="pause"),
    path("<int:pk>/resume/", views.resume, name="resume"),
    path("<int:pk>/move/", views.move, name="move"),
    path("<int:pk>/test/", views.test, name="test"),
]
