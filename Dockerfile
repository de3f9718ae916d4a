# One image for every process of the service: compose gives each its command. Health checks live in compose,
# because what "healthy" means depends on the process.

FROM python:3.13-slim-trixie AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN python -m venv /opt/arauto
WORKDIR /src
COPY requirements/build.txt requirements/service.txt requirements/
RUN /opt/arauto/bin/pip install --require-hashes -r requirements/build.txt -r requirements/service.txt
COPY pyproject.toml celeryconfig.py README.md LICENSE ./
COPY app app
COPY tasks tasks
COPY providers providers
COPY sandbox sandbox
COPY embedded embedded
COPY migrations migrations
RUN /opt/arauto/bin/pip install --no-deps --no-build-isolation . \
    && /opt/arauto/bin/pip uninstall --yes setuptools

FROM python:3.13-slim-trixie
RUN useradd --system --uid 10001 --home-dir /var/lib/arauto --create-home arauto
COPY --from=build /opt/arauto /opt/arauto
ENV PATH=/opt/arauto/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 10001
WORKDIR /var/lib/arauto
EXPOSE 8000
CMD ["arauto", "--help"]
