# docker build -t kernels-rung-by-rung .
# docker run --rm -p 127.0.0.1:8888:8888 kernels-rung-by-rung
# Open the address that JupyterLab prints (the one with 127.0.0.1 and the token): the notebooks.
# The rendered book is beside it, at http://127.0.0.1:8888/static/html/index.html
FROM python:3.13-slim

# Taichi wants libX11, also where nothing is drawn.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ git libx11-6 make \
    && rm -rf /var/lib/apt/lists/*

RUN useradd --create-home reader && install -d -o reader /home/reader/book
USER reader
WORKDIR /home/reader/book

# The image needs no CUDA, 4 GB, and no second copy of what is installed.
ENV PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu PIP_NO_CACHE_DIR=1
COPY --chown=reader:reader . .
RUN make book

EXPOSE 8888
# The token stays on: whoever reaches the port can run code.
CMD ["make", "lab", "ARGS=--ip=0.0.0.0 --no-browser"]
