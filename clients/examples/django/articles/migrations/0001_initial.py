"""The table of articles. The extension is there already: creating it takes a superuser."""

from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True
    operations = [
        migrations.CreateModel(
            name="Article",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("customer", models.TextField(db_index=True)),
                ("section", models.TextField()),
                ("title", models.TextField()),
                ("body", models.TextField()),
            ],
        )
    ]
