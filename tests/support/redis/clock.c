/* Preloaded into a server under test: its wall clock stands where the file named by TEST_CLOCK says, in microseconds since
 * 1970 as eight bytes of this machine's order. The monotonic clock, by which it waits, goes on. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int64_t micros(void) {
    static int file = -1;
    int64_t at = 0;
    if (file < 0) file = open(getenv("TEST_CLOCK"), O_RDONLY | O_CLOEXEC);
    if (pread(file, &at, sizeof at, 0) != sizeof at) abort();
    return at;
}

int gettimeofday(struct timeval *restrict to, void *restrict zone) {
    (void)zone;
    int64_t at = micros();
    to->tv_sec = at / 1000000;
    to->tv_usec = at % 1000000;
    return 0;
}

time_t time(time_t *to) {
    time_t at = micros() / 1000000;
    if (to) *to = at;
    return at;
}

int clock_gettime(clockid_t clock, struct timespec *to) {
    if (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE) return (int)syscall(SYS_clock_gettime, clock, to);
    int64_t at = micros();
    to->tv_sec = at / 1000000;
    to->tv_nsec = at % 1000000 * 1000;
    return 0;
}
