"""URLs of the pages of tokens, below those of the own account."""

from __future__ import annotations

from django.urls import path

from appliance.api import token_views

urlpatterns = [
    path("", token_views.listed, name="account_tokens"),
    path("new/", token_views.new, name="account_token_new"),
    path("<int:pk>/revoke/", token_views.revoke, name="account_token_revoke"),
]
