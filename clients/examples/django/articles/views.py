"""GET /CUSTOMER/search?q=…&section=…"""

from django.http import HttpRequest, JsonResponse
from kb_client import InvalidArgument, NotFound

from articles.models import Article


def search(request: HttpRequest, customer: str) -> JsonResponse:
    try:
        found = Article.search(customer, request.GET.get("q", ""), request.GET.get("section"))
    except NotFound:
        return JsonResponse({"error": "there is no such customer"}, status=404)
    except InvalidArgument as error:
        return JsonResponse({"error": error.message}, status=400)
    rows = [{"title": article.title, "passage": hit.content, "score": hit.score} for article, hit in found]
    return JsonResponse({"results": rows})
