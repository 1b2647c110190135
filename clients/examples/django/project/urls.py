"""The addresses of the example."""

from articles import views
from django.urls import path

urlpatterns = [path("<str:customer>/search", views.search)]
