/* Style sheet and script of the HTML report, as text that goes into the page. */
#ifndef REPORT_STYLE_H
#define REPORT_STYLE_H

extern const char report_style[];
extern const char report_script[];

#endif
