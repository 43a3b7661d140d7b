"""URLs of the settings pages."""

from __future__ import annotations

from django.urls import path

from appliance.managed import effects_views, forms, kept, mail_users, views

app_name = "managed"
urlpatterns = [
    path("", views.known, name="settings"),
    path("check/", views.check, name="check"),
    path("effects/", effects_views.effects, name="effects"),
    path("apply/", views.apply, name="apply"),
    path("history/", views.history, name="history"),
    path("export/", views.export, name="export"),
    path("certificates/", kept.certificates, name="certificates"),
    path("certificates/add/", kept.certificate_add, name="certificate_add"),
    path("certificates/make/", kept.certificate_make, name="certificate_make"),
    path("dkim/", kept.dkim, name="dkim"),
    path("dkim/make/", kept.dkim_make, name="dkim_make"),
    path("dkim/use/", kept.dkim_use, name="dkim_use"),
    path("maps/", kept.maps, name="maps"),
    path("maps/put/", kept.map_put, name="map_put"),
    path("users/", mail_users.users, name="users"),
    path("users/put/", mail_users.user_put, name="user_put"),
    path("users/remove/", mail_users.user_remove, name="user_remove"),
    path("kinds/<slug:slug>/", forms.kind, name="kind"),
    path("kinds/<slug:slug>/check/", forms.kind_check, name="kind_check"),
    path("kinds/<slug:slug>/rows/<slug:section>/", forms.row, name="row"),
    path("kinds/<slug:slug>/rows/<slug:section>/check/", forms.row_check, name="row_check"),
    path("kept/unuse/", kept.unuse, name="unuse"),
    path("kept/remove/", kept.remove, name="remove"),
]
