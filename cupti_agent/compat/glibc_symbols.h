// Binds what glibc 2.34 moved into libc.so.6 under a new version to the version that every glibc
// since 2.2.5 has, so that a library built on a new system loads on glibc 2.28. Included before
// anything else in every file of the injected library.
#ifndef TIDEMARK_CUPTI_AGENT_COMPAT_GLIBC_SYMBOLS_H_
#define TIDEMARK_CUPTI_AGENT_COMPAT_GLIBC_SYMBOLS_H_
#ifndef __ASSEMBLER__
__asm__(".symver dlopen,dlopen@GLIBC_2.2.5");
__asm__(".symver dlsym,dlsym@GLIBC_2.2.5");
__asm__(".symver dladdr,dladdr@GLIBC_2.2.5");
__asm__(".symver dlclose,dlclose@GLIBC_2.2.5");
__asm__(".symver dlerror,dlerror@GLIBC_2.2.5");
__asm__(".symver pthread_create,pthread_create@GLIBC_2.2.5");
__asm__(".symver pthread_attr_setstacksize,pthread_attr_setstacksize@GLIBC_2.2.5");
__asm__(".symver pthread_sigmask,pthread_sigmask@GLIBC_2.2.5");
#endif
#endif
