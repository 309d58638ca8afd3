export GENSVC_BASE_URL={url}
export GENSVC_API_KEY=svc_...
gensvc generate text "Name three rivers"
gensvc generate image "A lighthouse at dusk" -o lighthouse.png
