# One image for every role: `docker run saros trainer`, `saros api`, `saros audit` and all the others.
#
# It runs as nobody in particular (10001), with a read-only root file system and a /tmp that can be written. The kernels
# are in it, compiled: a process loads them in seconds.
#
# Compiled for which CPU? Numba's default is the one that compiles, with all it has, and it loads only kernels that were
# compiled for the very same. Then each CPU other than that of whoever built the image would compile all of them again,
# at every start. So they are compiled for a level that all common servers have: x86-64-v3 (Intel since 2013, AMD since
# 2015), which leaves AVX-512 unused; where the platform is not x86-64 at all, for `generic`, which is any of its CPUs.
# `--build-arg CPU=generic`, or any other name that LLVM knows, chooses another.

FROM python:3.11-slim-bookworm AS build

# The packages first: they change rarely. They go into an environment without pip, as nothing is installed later.
RUN python -m venv --without-pip /opt/saros
COPY requirements.lock /src/
RUN pip --python /opt/saros/bin/python install --no-cache-dir --disable-pip-version-check --require-hashes \
        -r /src/requirements.lock \
 # Tests of packages are a tenth of their bytes, and nobody runs them here.
 && find /opt/saros/lib -type d -name tests -prune -exec rm -r {} +

# Then the kernels, of which the source is all that they depend on: a change of anything else compiles nothing.
ARG SITE=/opt/saros/lib/python3.11/site-packages/saros
COPY services/saros/__init__.py services/saros/children.py services/saros/errors.py services/saros/kernels.py $SITE/
COPY services/saros/core $SITE/core
COPY services/saros/wire $SITE/wire
ARG CPU
# Which CPU that is, each Python of the image sets for itself, unless the container does: ENV cannot ask for a platform.
# A .pth file, since a distribution's Python may have a sitecustomize.py of its own before ours.
# No features beside those that the CPU's name stands for, or they would be those of the machine that compiles.
RUN test "$CPU" || case $(uname -m) in x86_64) CPU=x86-64-v3 ;; *) CPU=generic ;; esac \
 && printf 'import os as o; o.environ.setdefault("NUMBA_CPU_%s", "%s"); o.environ.setdefault("NUMBA_CPU_%s", "%s")\n' \
        NAME "$CPU" FEATURES "" > /opt/saros/lib/python3.11/site-packages/saros-cpu.pth \
 && /opt/saros/bin/python -c "from saros.kernels import warm; warm()"

# Last all of Saros, over it. It is built with the setuptools of the Python image: nothing outside of the lock is fetched.
COPY . /src
RUN pip wheel --no-cache-dir --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir /wheels /src \
 && pip --python /opt/saros/bin/python install --no-cache-dir --disable-pip-version-check --no-deps --no-index \
        /wheels/saros-*.whl


FROM python:3.11-slim-bookworm

# XDG_CACHE_HOME: where numba keeps what it compiles beside what is in the image, which is linked there.
# HEALTH_URL: whom the health check asks. For a trainer, its /metrics.
# PYTHONFAULTHANDLER: where a process stands that says nothing any more, it writes at SIGABRT.
# *_NUM_THREADS: numpy's BLAS would start a thread for each core, and no service uses it.
ENV PATH=/opt/saros/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONFAULTHANDLER=1 \
    OPENBLAS_NUM_THREADS=1 \
    OMP_NUM_THREADS=1 \
    XDG_CACHE_HOME=/tmp/cache \
    HEALTH_URL=http://127.0.0.1:8000/readyz

# A volume that is made for one of the two places begins as its user's: keys of callers, and their hashes for the API.
RUN useradd --uid 10001 --user-group --no-create-home --home-dir /tmp --shell /usr/sbin/nologin saros \
 && install --directory --owner saros --group saros --mode 0700 /keys /entries
COPY --from=build /opt/saros /opt/saros

USER 10001:10001
WORKDIR /tmp
# No proxy is asked: the address is of this container.
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s CMD ["python", "-c", \
    "import os, urllib.request as u; u.build_opener(u.ProxyHandler({})).open(os.environ['HEALTH_URL'], timeout=4)"]

ENTRYPOINT ["saros"]
CMD ["--help"]
