/* Threads that Python did not start wait before they get its lock: what is rare under load happens in every run. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>

extern void *PyGILState_GetThisThreadState(void);

int PyGILState_Ensure(void) {
  int (*original)(void) = (int (*)(void))dlsym(RTLD_NEXT, "PyGILState_Ensure");
  if (!PyGILState_GetThisThreadState()) usleep(100000);
  return original();
}
