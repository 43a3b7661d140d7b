"""Where signing in, TOTP and the own account are: allauth's own pages, of which only these are open."""

from __future__ import annotations

from django.urls import include, path

urlpatterns = [
    path("", include("allauth.urls")),
]
