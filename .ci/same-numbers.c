/* Random numbers that are always the same; see rustc-in-order. */
#include <string.h>
#include <sys/types.h>

ssize_t getrandom(void *buffer, size_t length, unsigned flags)
{
	(void)flags;
	memset(buffer, 90, length);
	return (ssize_t)length;
}
