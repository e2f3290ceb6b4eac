/* mokscope's version; the Makefile reads it from here. */
#ifndef MOKSCOPE_VERSION_H
#define MOKSCOPE_VERSION_H

#define MOKSCOPE_VERSION "0.1.0"

#endif
