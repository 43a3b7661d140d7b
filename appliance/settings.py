"""Django's settings of the portal, made from waypost.toml and checked there; what is secret lies below home/portal.

Environment: WAYPOST_CONFIG (the file; waypost.toml of the checkout by default), DATABASE_URL, WAYPOST_SECRET_KEY. A wrong
value stops the start with the file, the line and what is allowed (``mailcore.config.load``). The portal takes nothing else from
``mailcore`` but the control client.
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from typing import Any

import dj_database_url
from csp.constants import NONE, SELF
from django.core.exceptions import ImproperlyConfigured

from appliance.common.certificate import names_of_certificate
from appliance.common.nodes_database import NoDatabase, nodes_database
from appliance.common.secret import secret_key
from mailcore.config.load import ConfigError, load
from mailcore.config.portal import OF_NODES
from mailcore.config.values import listen_address

BASE_DIR = Path(__file__).resolve().parent.parent
# Templates and static files lie beside the package in a checkout, and in it where make-release has put them.
ASSETS = BASE_DIR if (BASE_DIR / "manage.py").is_file() else BASE_DIR / "appliance"
CONFIG = Path(os.environ.get("WAYPOST_CONFIG", BASE_DIR / "waypost.toml"))
try:
    # The keys of the receivers' certificates are not for the portal's user.
    WAYPOST = load(CONFIG, look_at_certificate=False, managed_may_be_hidden=True)
except ConfigError as error:
    raise ImproperlyConfigured(str(error)) from None
PORTAL = WAYPOST.portal
OIDC = WAYPOST.oidc
PORTAL_DIRECTORY = WAYPOST.home / "portal"
# As the core names them; "" without [nodes]. Portals of several nodes may share a database, in which rows have the name.
NODE = (WAYPOST.nodes.node or socket.gethostname())[:64] if WAYPOST.nodes.is_on else ""
CONTROL_SOCKET = WAYPOST.run_directory / "control.sock"
REPORTS = WAYPOST.reports
REPORTS_DIRECTORY = WAYPOST.reports_directory
EVENTS_DIRECTORY = WAYPOST.events_directory
EXPORTER_SOCKET = WAYPOST.run_directory / "exporter.sock"
METRICS_DIRECTORY = PORTAL_DIRECTORY / "metrics"
REDIS_SOCKET = WAYPOST.run_directory / "redis.sock"  # of the Redis that ./run starts
LISTEN_HOST, LISTEN_PORT = listen_address(PORTAL.listen)
HTTPS = PORTAL.public_url.startswith("https://") or bool(PORTAL.tls_certificate)
BEHIND_PROXY = bool(PORTAL.public_url) and not PORTAL.tls_certificate

SECRET_KEY = os.environ.get("WAYPOST_SECRET_KEY") or secret_key(PORTAL_DIRECTORY)
DEBUG = False
_public_host = PORTAL.public_url.partition("://")[2].partition("/")[0].rpartition("@")[2]
# A new host may have no name in the DNS yet: browsers may use each name and address that the portal's certificate names.
ALLOWED_HOSTS = [
    *("127.0.0.1", "localhost", "[::1]", LISTEN_HOST),
    *filter(None, [_public_host.partition(":")[0]]),
    *(names_of_certificate(PORTAL.tls_certificate) if PORTAL.tls_certificate else ()),
]
CSRF_TRUSTED_ORIGINS = [PORTAL.public_url.rstrip("/")] if PORTAL.public_url else []

INSTALLED_APPS = [
    "appliance.common",
    "appliance.live",
    "appliance.queue",
    "appliance.destinations",
    "appliance.tuning",
    "appliance.managed",
    "appliance.log",
    "appliance.status",
    "appliance.reports",
    "appliance.alerts",
    "appliance.webhooks",
    "appliance.api",
    "appliance.palette",
    "appliance.accounts",
    "appliance.audit",
    "appliance.accounts.apps.PortalAdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.humanize",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "allauth",
    "allauth.account",
    "allauth.mfa",
    "axes",
    "csp",
    "django_celery_beat",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "csp.middleware.CSPMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "appliance.accounts.middleware.HeadersMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",  # below what sets headers, so that static files have them, too
    "appliance.common.compression.CompressionMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.auth.middleware.LoginRequiredMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "appliance.accounts.middleware.SessionMiddleware",
    "appliance.common.middleware.TimeZoneMiddleware",
    "appliance.common.middleware.CoreErrorsMiddleware",
    "axes.middleware.AxesMiddleware",
]

if PORTAL.metrics_networks:  # else nothing of it is loaded
    # Read by prometheus-client when it is imported: all processes of the portal put their numbers there.
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(METRICS_DIRECTORY)
    METRICS_DIRECTORY.mkdir(parents=True, exist_ok=True)
    MIDDLEWARE.insert(0, "appliance.metrics.middleware.MetricsMiddleware")

ROOT_URLCONF = "appliance.urls"
ASGI_APPLICATION = "appliance.asgi.application"
TEMPLATES: list[dict[str, Any]] = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [ASSETS / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "builtins": ["appliance.common.templatetags.waypost"],
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "appliance.common.context.portal",
            ],
        },
    }
]

DATABASE_URL = os.environ.get("DATABASE_URL") or PORTAL.database_url or f"sqlite:///{PORTAL_DIRECTORY}/portal.sqlite3"
try:
    _database = (
        nodes_database(WAYPOST.nodes, PORTAL.database_password_file)
        if DATABASE_URL == OF_NODES
        else dict(dj_database_url.parse(DATABASE_URL))
    )
except NoDatabase as error:
    raise ImproperlyConfigured(str(error)) from None
DATABASES: dict[str, dict[str, Any]] = {"default": _database | {"CONN_MAX_AGE": 60, "CONN_HEALTH_CHECKS": True}}
if DATABASES["default"]["ENGINE"].endswith("sqlite3"):
    # Writers wait for each other instead of failing; readers never wait. A transaction says at its start that it writes.
    DATABASES["default"]["OPTIONS"] = {
        "timeout": 20,
        "transaction_mode": "IMMEDIATE",
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;",
    }
# Shared by all portal processes: rates, and codes of TOTP that were used. Little is kept there, and nothing that is live.
CACHES = {"default": {"BACKEND": "django.core.cache.backends.db.DatabaseCache", "LOCATION": "cache"}}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# Signing in

AUTHENTICATION_BACKENDS = [
    "axes.backends.AxesStandaloneBackend",
    "django.contrib.auth.backends.ModelBackend",  # allauth's own would tell who guessed that an account is inactive
]
PASSWORD_HASHERS = ["django.contrib.auth.hashers.Argon2PasswordHasher"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator", "MinimumLengthValidator", "CommonPasswordValidator", "NumericPasswordValidator",
    )
]  # fmt: skip
AUTH_PASSWORD_VALIDATORS[1] |= {"OPTIONS": {"min_length": 12}}  # type: ignore[dict-item]
LOGIN_URL = "account_login"
LOGIN_REDIRECT_URL = "status:overview"
ACCOUNT_ADAPTER = "appliance.accounts.adapter.AccountAdapter"
ACCOUNT_LOGIN_METHODS = {"username"}
ACCOUNT_SIGNUP_FIELDS = ["username*", "password1*"]
ACCOUNT_EMAIL_VERIFICATION = "none"
ACCOUNT_LOGOUT_ON_GET = False
ACCOUNT_SESSION_REMEMBER = False
ACCOUNT_REAUTHENTICATION_REQUIRED = True
ACCOUNT_REAUTHENTICATION_TIMEOUT = 300
ACCOUNT_FORMS = {
    "login": "appliance.accounts.forms.LoginForm",
    "reauthenticate": "appliance.accounts.forms.ReauthenticateForm",
    "change_password": "appliance.accounts.forms.ChangePasswordForm",
}
# Axes counts failures by user and address; this bounds those who try many names, and what they write into the audit.
ACCOUNT_RATE_LIMITS = {
    "login": "60/m/ip",
    "login_failed": None,
    "oidc": "60/m/ip",  # each begins a session
    "invitation": "20/m/ip",  # codes, and passwords of invited users
    "change_password": "20/m/user",
    "reauthenticate": "20/m/user",
}
MFA_ADAPTER = "appliance.accounts.adapter.MFAAdapter"
MFA_FORMS = {
    "activate_totp": "appliance.accounts.forms.ActivateForm",
    "add_webauthn": "appliance.accounts.passkeys.AddForm",
    "authenticate_webauthn": "appliance.accounts.passkeys.CodeForm",
    "login_webauthn": "appliance.accounts.passkeys.LoginForm",
    "reauthenticate_webauthn": "appliance.accounts.passkeys.AgainForm",
    "authenticate": "appliance.accounts.forms.CodeForm",
    "reauthenticate": "appliance.accounts.forms.CodeAgainForm",
}
MFA_SUPPORTED_TYPES = ["totp", "webauthn", "recovery_codes"]
MFA_PASSKEY_LOGIN_ENABLED = True
MFA_RATE_LIMITS = {"webauthn_login": "60/m/ip"}
MFA_RECOVERY_CODES_SHOW_ONCE = True
MFA_TOTP_ISSUER = "Waypost"
AXES_FAILURE_LIMIT = PORTAL.lockout_failures
AXES_COOLOFF_TIME = PORTAL.lockout_s / 3600
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"]]
AXES_RESET_ON_SUCCESS = True
AXES_LOCKOUT_CALLABLE = "appliance.accounts.lockout.locked_out"
AXES_VERBOSE = False
AXES_DISABLE_ACCESS_LOG = True  # the audit has it
AXES_SENSITIVE_PARAMETERS = ["code", "oldpassword", "password1", "password2"]  # "password" always is
AXES_RESET_COOL_OFF_ON_FAILURE_DURING_LOCKOUT = False
SESSION_ENGINE = "appliance.accounts.session_store"
SESSION_COOKIE_AGE = PORTAL.session_idle_s
SESSION_SAVE_EVERY_REQUEST = False  # SessionMiddleware prolongs it, not with every request
SESSION_EXPIRE_AT_BROWSER_CLOSE = False
SESSION_COOKIE_NAME = "__Host-waypost-session" if HTTPS else "waypost-session"  # a neighbour's host can't set a __Host-
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_SECURE = HTTPS
CSRF_COOKIE_NAME = "__Host-waypost-csrf" if HTTPS else "waypost-csrf"
CSRF_COOKIE_SECURE = HTTPS
CSRF_COOKIE_HTTPONLY = True  # forms and hx-headers carry the token

# Restrictions for the browser

SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
SECURE_CROSS_ORIGIN_OPENER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
SECURE_SSL_REDIRECT = HTTPS
SECURE_HSTS_SECONDS = 31_536_000 if HTTPS else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = HTTPS
SECURE_HSTS_PRELOAD = HTTPS and PORTAL.hsts_preload
SILENCED_SYSTEM_CHECKS = ["security.W021"]  # it asks for preload, which only the owner of the domain can decide
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if HTTPS and BEHIND_PROXY else None
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [NONE],
        "script-src": [SELF],
        "style-src": [SELF],
        "img-src": [SELF, "data:"],
        "font-src": [SELF],
        "connect-src": [SELF],
        "form-action": [SELF],
        "base-uri": [NONE],
        "frame-ancestors": [NONE],
        "manifest-src": [SELF],
    }
}

# Language, time, files

LANGUAGE_CODE = "en-gb"
USE_I18N = False
USE_TZ = True
TIME_ZONE = "UTC"
STATIC_URL = "/static/"
STATICFILES_DIRS = [ASSETS / "static"]
STATIC_ROOT = PORTAL_DIRECTORY / "static"
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.InMemoryStorage"},  # nothing uploaded is stored
    "staticfiles": {"BACKEND": "appliance.common.static_files.StaticFiles"},
}
FILE_UPLOAD_MAX_MEMORY_SIZE = 1 << 20
FILE_UPLOAD_HANDLERS = ["django.core.files.uploadhandler.MemoryFileUploadHandler"]  # a private key touches no disk here
DATA_UPLOAD_MAX_NUMBER_FIELDS = 3_000  # a page of 1 000 messages selected

# Celery (appliance/celery.py). Pages never wait for Redis; an unavailable Redis is an immediate error.

CELERY_BROKER_URL = os.environ.get("REDIS_URL") or REPORTS.broker_url or f"redis+socket://{REDIS_SOCKET}"
CELERY_BROKER_TRANSPORT_OPTIONS = {"socket_connect_timeout": 2, "socket_timeout": 5, "max_retries": 0}
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None  # the worker waits for it without limit
CELERY_BEAT_SCHEDULER = "appliance.reports.scheduler:NodeScheduler"
CELERY_TASK_DEFAULT_QUEUE = f"celery.{NODE}" if NODE else "celery"  # nodes may have one Redis
CELERY_TASK_IGNORE_RESULT = True  # results are in the portal's database
CELERY_TASK_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_TIMEZONE = "UTC"
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_WORKER_SEND_TASK_EVENTS = False

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "filters": {"client": {"()": "appliance.common.faults.OfClient"}},
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s: %(message)s"}},
    "handlers": {
        "stderr": {"class": "logging.StreamHandler", "stream": sys.stderr, "formatter": "line"},
        "stderr_of_clients": {
            "class": "logging.StreamHandler",
            "stream": sys.stderr,
            "formatter": "line",
            "filters": ["client"],
        },
    },
    "root": {"handlers": ["stderr"], "level": "WARNING"},
    "loggers": {
        # Responses 403 and 404 are pages; thirty log lines for each would bury real errors.
        "django.request": {"level": "ERROR"},
        # Requests that no browser sends, such as one with another Host: one line, because any client can cause them.
        "django.security": {"handlers": ["stderr_of_clients"], "propagate": False},
        # It writes down the names that were typed, which may be passwords; the audit has what happened.
        "axes": {"level": "ERROR"},
    },
}
