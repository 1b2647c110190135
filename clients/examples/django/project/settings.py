"""Only what the example needs. The database is that of libpq's environment variables (PGHOST, PGDATABASE …)."""

import os

SECRET_KEY = os.environ.get("SECRET_KEY", "only for this example")
ALLOWED_HOSTS = ["*"]
ROOT_URLCONF = "project.urls"
INSTALLED_APPS = ["articles"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": os.environ["PGDATABASE"],
        "HOST": os.environ.get("PGHOST", ""),
        "PORT": os.environ.get("PGPORT", ""),
        "USER": os.environ.get("PGUSER", ""),
        # Behind PgBouncer with pool_mode = transaction, cursors on the server do not work.
        "DISABLE_SERVER_SIDE_CURSORS": True,
    }
}
